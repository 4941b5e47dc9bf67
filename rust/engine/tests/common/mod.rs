//! Tests that need a process of their own run their test binary again in a role.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::process::Command;

const ROLE: &str = "KVSTORE_TEST_ROLE";

/// A command that runs `role` of this test binary. The binary has a test named `in_a_role`, which
/// does nothing else than what [`role`] tells it.
pub(crate) fn command(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "in_a_role", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

/// The role of this process, none in the test run itself.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Forks; the child runs `work` and ends at once with its answer, without any clean-up of the
/// parent's. Returns the child's process id.
pub(crate) fn fork(work: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: the child runs `work`, which the tests keep to system calls, and never returns.
    match unsafe { libc::fork() } {
        0 => {
            let code = work();
            // SAFETY: ends the process without running anything.
            unsafe { libc::_exit(code) }
        }
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        child => child,
    }
}

/// Waits for a child: its exit code, or minus the signal that ended it.
pub(crate) fn wait(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: a plain system call on a local integer.
    let got = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(got, child);
    if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

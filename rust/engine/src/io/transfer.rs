//! Transfers that end: short ones go on, interrupted ones try again, within bounds.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use super::device::OpKind;
use super::error::{IoErrorKind, kind_of};

/// Attempts without progress before an operation is given up.
const ATTEMPTS: u32 = 64;

/// Moves `len` bytes by steps. `step(done)` tries to move what is left and returns how many bytes
/// it did. Steps begin at multiples of `unit`, as direct I/O wants it, so a short step that ends
/// inside a unit does that unit again.
pub(super) fn full(
    kind: OpKind,
    len: usize,
    unit: usize,
    mut step: impl FnMut(usize) -> io::Result<usize>,
) -> Result<(), IoErrorKind> {
    // No error at all and still no progress: a read is inside the last unit of a file that ends
    // there, a write is on a device that lies.
    let stalled = match kind {
        OpKind::Read => IoErrorKind::Eof,
        OpKind::Write | OpKind::Sync => IoErrorKind::Device(Errno::IO.raw_os_error()),
    };
    let (mut done, mut attempts) = (0, 0);
    while done < len {
        let moved = match step(done) {
            Ok(0) => return Err(stalled),
            Ok(moved) => moved,
            Err(error) if attempts < ATTEMPTS && is_passing(&error) => 0,
            Err(error) => return Err(kind_of(&error)),
        };
        let reached = done + moved;
        let begin = if reached < len { reached - reached % unit } else { reached };
        if begin > done {
            (done, attempts) = (begin, 0);
        } else if attempts < ATTEMPTS {
            attempts += 1;
        } else {
            return Err(stalled);
        }
    }
    Ok(())
}

/// Whether the same call may work in a moment. Waits that moment where it is not at once.
fn is_passing(error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::Interrupted => true,
        io::ErrorKind::WouldBlock => {
            std::thread::sleep(Duration::from_millis(1));
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        kind: OpKind,
        len: usize,
        unit: usize,
        steps: &[io::Result<usize>],
    ) -> (Result<(), IoErrorKind>, Vec<usize>) {
        let mut starts = Vec::new();
        let result = full(kind, len, unit, |done| {
            let step = steps.get(starts.len()).or(steps.last()).unwrap();
            starts.push(done);
            match step {
                Ok(moved) => Ok(*moved),
                Err(error) => Err(io::Error::from(error.kind())),
            }
        });
        (result, starts)
    }

    #[test]
    fn short_steps_go_on_at_whole_units() {
        let steps = [Ok(4096), Ok(5000), Ok(100), Ok(8192)];
        let (result, starts) = run(OpKind::Read, 4 * 4096, 4096, &steps);
        assert_eq!(result, Ok(()));
        assert_eq!(starts, [0, 4096, 8192, 8192]);
    }

    #[test]
    fn nothing_at_all_is_the_end_for_a_read_and_a_fault_for_a_write() {
        assert_eq!(run(OpKind::Read, 10, 1, &[Ok(4), Ok(0)]).0, Err(IoErrorKind::Eof));
        assert_eq!(run(OpKind::Write, 10, 1, &[Ok(4), Ok(0)]).0, Err(IoErrorKind::Device(5)));
    }

    #[test]
    fn a_file_that_ends_inside_a_unit_is_the_end() {
        let (result, starts) = run(OpKind::Read, 8192, 4096, &[Ok(6000), Ok(1904)]);
        assert_eq!(result, Err(IoErrorKind::Eof));
        assert!(starts.len() < 100);
    }

    #[test]
    fn interruptions_are_bounded() {
        let interrupted = || Err(io::Error::from(io::ErrorKind::Interrupted));
        assert_eq!(run(OpKind::Write, 9, 1, &[interrupted(), interrupted(), Ok(9)]).0, Ok(()));
        let (result, starts) = run(OpKind::Write, 9, 1, &[interrupted()]);
        assert_eq!(result, Err(IoErrorKind::Device(5)));
        assert!(starts.len() < 100);
    }

    #[test]
    fn no_bytes_need_no_step() {
        assert_eq!(run(OpKind::Read, 0, 4096, &[Ok(0)]), (Ok(()), vec![]));
    }
}

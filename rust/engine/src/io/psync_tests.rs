use super::*;
use crate::host::Buf;

/// A queue of so many reads and writes, with tokens from 0 and from 100.
fn queue(reads: u64, writes: u64) -> Queue {
    let buf = Buf { extent: 0, offset: 0, len: 4096 };
    Queue {
        reads: (0..reads).map(|token| Op::read(token, File::Data, 0, buf)).collect(),
        writes: (100..100 + writes).map(|token| Op::write(token, File::Data, 0, buf)).collect(),
        ..Queue::default()
    }
}

fn picks(queue: &mut Queue, count: usize, writers: usize) -> Vec<Option<u64>> {
    (0..count).map(|_| queue.pick(writers).map(|op| op.token)).collect()
}

#[test]
fn reads_go_first_and_writes_have_a_floor() {
    let order = picks(&mut queue(7, 3), 11, 8);
    let expected = [0, 1, 2, 100, 3, 4, 5, 101, 6, 102].map(Some);
    assert_eq!(order[..10], expected);
    assert_eq!(order[10], None);
}

#[test]
fn a_write_is_not_owed_the_turns_before_it_came() {
    let mut queue = queue(20, 0);
    picks(&mut queue, 10, 8);
    queue.writes.push_back(Op::sync(100, File::Data));
    assert_eq!(picks(&mut queue, 4, 8), [Some(10), Some(11), Some(12), Some(100)]);
}

#[test]
fn writes_leave_some_threads_to_reads() {
    let mut queue = queue(2, 2);
    queue.writing = 6;
    assert_eq!(picks(&mut queue, 3, 6), [Some(0), Some(1), None]);
    *queue.running(OpKind::Sync) -= 1;
    assert_eq!(picks(&mut queue, 1, 6), [Some(100)]);
}

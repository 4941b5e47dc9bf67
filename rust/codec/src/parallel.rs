//! Running independent shares of a call on threads of its own.

/// Calls `work` for each item; the first share runs on the calling thread, which starts a thread for
/// each of the others and waits for them. One share starts none and allocates nothing.
pub(crate) fn pairs<T: Send>(items: impl Iterator<Item = T>, work: impl Fn(T) + Sync) {
    let mut items = items;
    let Some(first) = items.next() else { return };
    let Some(second) = items.next() else { return work(first) };
    std::thread::scope(|scope| {
        let work = &work;
        for item in std::iter::once(second).chain(items) {
            scope.spawn(move || work(item));
        }
        work(first);
    });
}

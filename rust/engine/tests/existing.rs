//! Looking after a store without having its namespaces' descriptions.

mod support;

use kvstore_engine::store::{Ack, Status};
use support::*;

#[test]
fn a_namespace_can_be_cleared_by_its_digest_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &options());
    let (a, b) = (namespace(&store, &layout(192), "a"), namespace(&store, &layout(192), "b"));
    let tokens = prompt(1, 10);
    for ns in [&a, &b] {
        assert_eq!(put_and_wait(ns, &tokens, Ack::Ssd), vec![Status::Stored; 10]);
    }
    assert_eq!(store.clear_namespace(a.digest().as_bytes(), false).unwrap(), 10);
    assert_eq!((check(&a, &tokens), check(&b, &tokens)), (0, 10));
    let error = store.clear_namespace(&[7; 32], false).unwrap_err();
    assert!(error.to_string().contains("no namespace"), "{error}");
}

//! One engine per directory in this process: a second open joins the first (contract C9).

use super::config::Options;
use super::open::Shared;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

static OPEN: Mutex<Option<HashMap<PathBuf, Weak<Shared>>>> = Mutex::new(None);

/// The engine of `dir`, made by `make` if this process has none.
///
/// # Errors
/// The limits differ from those of the engine that is open, or what `make` says.
pub(crate) fn join_or(
    dir: &Path,
    options: &Options,
    make: impl FnOnce() -> Result<Arc<Shared>>,
) -> Result<Arc<Shared>> {
    let mut open = OPEN.lock();
    let open = open.get_or_insert_with(HashMap::new);
    open.retain(|_, shared| shared.strong_count() > 0);
    let joined = open.get(dir).and_then(Weak::upgrade).filter(|shared| shared.join());
    if let Some(shared) = joined {
        if shared.options != *options {
            shared.leave();
            return Err(Error::invalid(format!(
                "{} is open in this process with other options: open it with the same, or close it first",
                dir.display()
            )));
        }
        return Ok(shared);
    }
    let shared = make()?;
    open.insert(dir.to_owned(), Arc::downgrade(&shared));
    Ok(shared)
}

//! The one error of this crate's constructors: which group, which field, which value, which limit.

/// A layout that cannot be: says the group, the field, the value found and the limit it broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("layout {layout:?}{}: {field} = {value}: {limit}", group_part(.group.as_ref()))]
pub struct LayoutError {
    /// Name of the layout as given.
    pub layout: String,
    /// Name of the group, or `None` when the layout as a whole is wrong.
    pub group: Option<String>,
    /// The field that is wrong.
    pub field: &'static str,
    /// Its value as given.
    pub value: String,
    /// What would have been right.
    pub limit: String,
}

fn group_part(group: Option<&String>) -> String {
    group.map(|g| format!(", group {g:?}")).unwrap_or_default()
}

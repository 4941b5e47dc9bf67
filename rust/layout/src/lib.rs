//! What a model's cache is: groups, pages, exact accounting, resume plans.

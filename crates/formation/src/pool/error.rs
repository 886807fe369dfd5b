use phalanx_types::Class;

/// Why a text is not a pool.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    #[error("line {line} is no TOML: {message}")]
    Toml { line: usize, message: String },
    #[error("no JSON: {message}")]
    Json { message: String },
    #[error("{of} has an unknown key `{key}`{}", nearest.as_ref().map(|n| format!("; did you mean `{n}`?")).unwrap_or_default())]
    UnknownKey { of: String, key: String, nearest: Option<String> },
    #[error("{of} has no `{key}`")]
    Missing { of: String, key: &'static str },
    #[error("`{key}` of {of} must be {expected}, not {found}")]
    Value { of: String, key: &'static str, expected: &'static str, found: String },
    #[error("two nodes are called {name}")]
    SameName { name: String },
    #[error("`{key}` of {of} names {name}, which is no node of the pool{}", nearest.as_ref().map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
    UnknownNode { of: String, key: &'static str, name: String, nearest: Option<String> },
    #[error("the pool has no nodes")]
    Empty,
}

impl PoolError {
    pub fn class(&self) -> Class {
        Class::Fatal
    }
}

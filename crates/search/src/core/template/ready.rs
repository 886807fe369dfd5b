//! Search files that come with Phalanx.

/// The names of the ready search files.
pub const READY: [&str; 3] = ["cnn", "mobilenet", "transformer"];

/// The text of a ready search file: a template to start from.
pub fn ready(name: &str) -> Option<&'static str> {
    match name {
        "cnn" => Some(include_str!("../../../spaces/cnn.toml")),
        "mobilenet" => Some(include_str!("../../../spaces/mobilenet.toml")),
        "transformer" => Some(include_str!("../../../spaces/transformer.toml")),
        _ => None,
    }
}

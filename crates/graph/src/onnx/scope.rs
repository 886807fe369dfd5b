//! Where in the user's module a node or a weight comes from, as exporters tell it.

use super::proto::{NodeProto, metadata};

/// Marks a name that is not the user's.
pub(super) const MADE_UP: &str = "onnx::";

/// Marks a constant of a file that we wrote.
pub(super) const CONSTANT: &str = "onnx::constant::";

/// The path of the module that made a node, such as `layer1.0.conv1`.
pub(super) fn scope_of(node: &NodeProto) -> Option<String> {
    if let Some(scopes) = metadata(&node.metadata_props, "pkg.torch.onnx.name_scopes") {
        return from_list(scopes);
    }
    from_path(node.name.as_deref()?)
}

/// The last but one of `['', 'blocks.0', 'blocks.0.attn', 'linear']`.
fn from_list(text: &str) -> Option<String> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    let parts: Vec<&str> = inner.split(',').map(|p| p.trim().trim_matches(['\'', '"'])).collect();
    let module = parts.len().checked_sub(2).map(|i| parts[i])?;
    (!module.is_empty()).then(|| module.to_owned())
}

/// Of `/layer1/layer1.0/conv1/Conv`: a part that begins with the one before it replaces it.
fn from_path(name: &str) -> Option<String> {
    let (modules, _) = name.strip_prefix('/')?.rsplit_once('/')?;
    let mut path: Vec<&str> = Vec::new();
    for part in modules.split('/') {
        let continues =
            path.last().is_some_and(|last| part.strip_prefix(last).is_some_and(|r| r.starts_with('.')));
        if continues {
            path.pop();
        }
        path.push(part);
    }
    Some(path.join("."))
}

/// Whether a name was made up by an exporter instead of being a key of a `state_dict`.
pub(super) fn is_made_up(name: &str) -> bool {
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix)
            .is_some_and(|r| !r.is_empty() && r.bytes().all(|b| b.is_ascii_digit() || b == b'_'))
    };
    name.is_empty()
        || name.contains("::")
        || name.starts_with('/')
        || name.bytes().all(|b| b.is_ascii_digit())
        || ["val_", "embedding_", "unsqueeze_", "slice_", "lifted_tensor_", "_tensor_constant", "Constant_"]
            .iter()
            .any(|p| numbered(p))
        || ["embedding", "unsqueeze", "scalar_tensor_default", "arange", "view", "expand"].contains(&name)
        || name.starts_with("const_")
        || name.contains("_output_")
        || name.ends_with(".weight_bias")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_paths_of_both_exporters() {
        assert_eq!(from_path("/layer1/layer1.0/conv1/Conv").as_deref(), Some("layer1.0.conv1"));
        let deep = "/features/features.1/conv/conv.0/conv.0.0/Conv";
        assert_eq!(from_path(deep).as_deref(), Some("features.1.conv.0.0"));
        assert_eq!(from_path("/Gather"), None);
        assert_eq!(
            from_list("['', 'blocks.0', 'blocks.0.ln1', 'layer_norm']").as_deref(),
            Some("blocks.0.ln1")
        );
        assert_eq!(from_list("['', 'add']"), None);
    }

    #[test]
    fn made_up_names_are_seen() {
        for name in
            ["onnx::MatMul_123", "val_7", "embedding_1", "29", "/fc/Constant_output_0", "lifted_tensor_0"]
        {
            assert!(is_made_up(name), "{name}");
        }
        for name in ["fc.weight", "conv2d_1.bias", "pos_embedding", "cls_token"] {
            assert!(!is_made_up(name), "{name}");
        }
    }
}

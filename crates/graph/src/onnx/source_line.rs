//! The line of the user's source that a node comes from, as exporters record it.

use super::proto::{NodeProto, metadata};

/// Longer texts of exporters are not looked at.
const MOST_TEXT: usize = 64 << 10;
/// Longer paths are left out of messages.
const MOST_PATH: usize = 512;

/// `file:line` of the innermost frame that is not the framework's own, if the exporter recorded frames.
///
/// PyTorch's tracing exporter writes `FILE(LINE): FUNCTION`, innermost first, into the documentation of a node, if asked
/// to be verbose. The newer one writes the frames as in a traceback, innermost last, into the node's metadata.
pub(super) fn source_line(node: &NodeProto) -> Option<String> {
    let traced = node.doc_string.as_deref().filter(|text| text.len() <= MOST_TEXT);
    let traced = traced.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
    if let Some(found) = innermost(traced.lines().filter_map(traced_frame)) {
        return Some(found);
    }
    let trace = metadata(&node.metadata_props, "pkg.torch.onnx.stack_trace");
    let trace = trace.filter(|text| text.len() <= MOST_TEXT)?;
    innermost(trace.lines().rev().filter_map(traceback_frame))
}

fn innermost<'a>(frames: impl Iterator<Item = (&'a str, &'a str)>) -> Option<String> {
    let usable = |(path, line): &(&str, &str)| {
        path.len() <= MOST_PATH && !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit())
    };
    let (mut own, mut any) = (None, None);
    for frame in frames.filter(usable) {
        any = any.or(Some(frame));
        if !is_of_framework(frame.0) {
            own = Some(frame);
            break;
        }
    }
    own.or(any).map(|(path, line)| format!("{path}:{line}"))
}

fn is_of_framework(path: &str) -> bool {
    ["-packages/torch/", "/torch/nn/"].iter().any(|part| path.contains(part))
}

/// `/home/ada/model.py(12): forward`
fn traced_frame(line: &str) -> Option<(&str, &str)> {
    let (path, rest) = line.trim().split_once('(')?;
    let (number, _) = rest.split_once("):")?;
    Some((path, number))
}

/// `File "/home/ada/model.py", line 12, in forward`
fn traceback_frame(line: &str) -> Option<(&str, &str)> {
    let (path, rest) = line.trim().strip_prefix("File \"")?.split_once("\", line ")?;
    Some((path, rest.split_once(',').map_or(rest, |(number, _)| number)))
}

#[cfg(test)]
mod tests {
    use super::super::proto::StringStringEntry;
    use super::*;

    fn traced(text: &str) -> Option<String> {
        source_line(&NodeProto { doc_string: Some(text.to_owned().into()), ..NodeProto::default() })
    }

    #[test]
    fn the_innermost_line_of_the_user_is_found() {
        let torch = "/usr/lib/python3/site-packages/torch/nn/modules";
        let frames = format!(
            "{torch}/linear.py(134): forward\n{torch}/module.py(1777): _call_impl\n/home/m.py(12): forward\n/home/m.py(3): <module>\n"
        );
        assert_eq!(traced(&frames), Some("/home/m.py:12".to_owned()));
        let only_torch = format!("{torch}/linear.py(134): forward\n");
        assert_eq!(traced(&only_torch), Some(format!("{torch}/linear.py:134")));
        for odd in ["", "no frames", "(): ", "a(b): c", "x(1", &"y".repeat(MOST_TEXT + 1)] {
            assert_eq!(traced(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_traceback_has_the_innermost_line_at_its_end() {
        let trace = "File \"/home/m.py\", line 7, in forward\n    x = self.inner(x)\nFile \"/home/n.py\", line 30, in forward\n    return odd(x)";
        let entry = StringStringEntry {
            key: Some("pkg.torch.onnx.stack_trace".to_owned()),
            value: Some(trace.to_owned()),
        };
        let node = NodeProto { metadata_props: vec![entry], ..NodeProto::default() };
        assert_eq!(source_line(&node), Some("/home/n.py:30".to_owned()));
    }
}

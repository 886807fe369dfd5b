//! Byte strings kept as files: `<name>.hex`, two digits a byte, any line breaks, `#` for comments.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Every vector of a folder by its name; a folder that does not exist has none.
pub(crate) fn read_all(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeMap::new() };
    entries
        .map(|entry| {
            let path = entry.expect("folder of vectors can be listed").path();
            let name = path.file_stem().expect("a vector has a name").to_string_lossy().into_owned();
            assert_eq!(path.extension().and_then(|e| e.to_str()), Some("hex"), "{name} is not a vector");
            let text = fs::read_to_string(&path).expect("a vector is text");
            (name, parse(&text))
        })
        .collect()
}

fn parse(text: &str) -> Vec<u8> {
    let code = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let digits: Vec<u8> = code
        .flat_map(str::chars)
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("hexadecimal digit") as u8)
        .collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty(), "odd number of digits");
    pairs.iter().map(|[high, low]| high << 4 | low).collect()
}

/// The digits of some bytes, in one line.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

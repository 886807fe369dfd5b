//! Compresses the page, so that the server has every file ready in both forms.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let page = Path::new("page");
    println!("cargo::rerun-if-changed=page");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut files = Vec::new();
    collect(page, &mut files)?;
    files.sort();
    let mut table = String::from("pub(crate) const FILES: &[File] = &[\n");
    for (number, path) in files.iter().enumerate() {
        println!("cargo::rerun-if-changed={}", path.display());
        let bytes = std::fs::read(path)?;
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&bytes)?;
        let packed = gzip.finish()?;
        let mut crc = flate2::Crc::new();
        crc.update(&bytes);
        let packed_path = out.join(format!("page-{number}.gz"));
        std::fs::write(&packed_path, &packed)?;
        let name = path.strip_prefix(page)?.to_str().ok_or("a file name of the page is not text")?;
        let plain = std::fs::canonicalize(path)?;
        writeln!(
            table,
            "    File {{ name: {name:?}, plain: include_bytes!({plain:?}), gzip: include_bytes!({packed_path:?}), \
             etag: \"\\\"{:08x}-{}\\\"\" }},",
            crc.sum(),
            bytes.len()
        )?;
    }
    table.push_str("];\n");
    std::fs::write(out.join("page.rs"), table)?;
    Ok(())
}

fn collect(dir: &Path, into: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else {
            into.push(path);
        }
    }
    Ok(())
}

//! `[formation]` and `[sync]`: read, and refused where they ask for more than one node.

use super::error::ConfigError;
use super::section::Section;

pub(crate) const FORMATION_KEYS: &[&str] = &["replicas", "stages"];
pub(crate) const SYNC_KEYS: &[&str] = &["exchange", "every", "compress"];

const HINT: &str = "leave it out, or set it to 1: this version trains on this machine, on all its cores";

/// Refuses formations of more than one replica or stage.
pub(crate) fn read_formation(section: &mut Section<'_>) -> Result<(), ConfigError> {
    for key in FORMATION_KEYS {
        let said = section.int(key, 1..=1 << 20)?;
        if let Some(said) = said.filter(|said| said.value != 1) {
            return Err(ConfigError::NotYet {
                key: said.key,
                got: said.value.to_string(),
                at: said.source,
                hint: HINT,
            });
        }
    }
    Ok(())
}

/// Checks what replicas would exchange; with one replica there is nobody to exchange it with.
pub(crate) fn read_sync(section: &mut Section<'_>) -> Result<(), ConfigError> {
    section.word("exchange", "exchange", &["gradients", "parameters", "outer"])?;
    section.int("every", 1..=i64::MAX)?;
    section.word("compress", "compression", &["none", "f16", "bf16", "int8", "topk"])?;
    Ok(())
}

//! Built-in models, with the names and initial weights of their PyTorch counterparts.

mod gpt;
mod mobilenet;
mod resnet;
mod small;

use crate::{BuildError, Graph};
use phalanx_types::nearest;

/// Every model of the zoo.
pub const NAMES: [&str; 6] = ["digits-cnn", "cifar-cnn", "mobilenet-v2", "resnet-18", "gpt-small", "mlp"];

/// Options of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZooOptions {
    /// The shape of one sample; for `gpt-small` the length of the context.
    pub input: Option<Vec<usize>>,
    /// How many classes there are; for `gpt-small` the size of the vocabulary.
    pub classes: Option<usize>,
}

/// Why a model cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ZooError {
    #[error("no model of the zoo is called `{name}`{}", did_you_mean(*nearest))]
    Unknown { name: String, nearest: Option<&'static str> },
    #[error("model `{model}` takes samples of {wanted}, not of shape {got:?}")]
    Input { model: &'static str, wanted: &'static str, got: Vec<usize> },
    #[error("model `{model}` cannot be built for this input")]
    Build {
        model: &'static str,
        #[source]
        source: BuildError,
    },
}

fn did_you_mean(nearest: Option<&str>) -> String {
    match nearest {
        Some(word) => format!("; did you mean `{word}`?"),
        None => format!("; there are {}", NAMES.join(", ")),
    }
}

/// Builds a model by name.
///
/// # Errors
/// There is no model of that name, or it does not accept this input.
pub fn build(name: &str, options: &ZooOptions) -> Result<Graph, ZooError> {
    let Some(model) = NAMES.into_iter().find(|n| *n == name) else {
        return Err(ZooError::Unknown { name: name.into(), nearest: nearest(name, NAMES) });
    };
    match model {
        "digits-cnn" => small::digits_cnn(model, options),
        "cifar-cnn" => small::cifar_cnn(model, options),
        "mobilenet-v2" => mobilenet::v2(model, options),
        "resnet-18" => resnet::resnet_18(model, options),
        "gpt-small" => gpt::small(model, options),
        _ => small::mlp(model, options),
    }
}

/// The shape of an image: the requested or the default one.
fn image(model: &'static str, options: &ZooOptions, usual: [usize; 3]) -> Result<[usize; 3], ZooError> {
    match options.input.as_deref() {
        None => Ok(usual),
        Some(&[c, h, w]) if c > 0 && h > 0 && w > 0 => Ok([c, h, w]),
        Some(got) => Err(ZooError::Input {
            model,
            wanted: "three dimensions (channels, height, width)",
            got: got.to_vec(),
        }),
    }
}

fn finish(model: &'static str, builder: crate::Builder) -> Result<Graph, ZooError> {
    builder.finish().map_err(|source| ZooError::Build { model, source })
}

#[cfg(test)]
mod tests;

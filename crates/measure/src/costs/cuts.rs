//! The cuts that a run file requests.

use crate::error::CostError;
use phalanx_formation::ModelCost;
use phalanx_train::config::{ConfigError, CutBefore, Source, Words};
use phalanx_types::nearest;

/// How many operators are listed if none has a similar name.
const NAMED: usize = 12;

/// A model cannot be cut before an existing operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`formation.cuts`: the model cannot be cut before `{op}`: {}, at {at}", reason(*first))]
pub struct NoCut {
    pub op: String,
    pub at: Source,
    /// Whether it is the first operator.
    pub first: bool,
    /// The nearest operators before which the model can be cut.
    pub near: Vec<String>,
}

fn reason(first: bool) -> &'static str {
    if first { "it is the first operator" } else { "a parameter is used on both sides of it" }
}

impl NoCut {
    pub(crate) fn hint(&self) -> String {
        match &self.near[..] {
            [] => "this model can be cut nowhere; leave out `formation.cuts`".to_owned(),
            near => format!("next to it the model can be cut before `{}`", near.join("` and `")),
        }
    }
}

/// Keeps only the cuts that a run file names, if it names any.
///
/// # Errors
/// The model has no such operator, or cannot be cut before it.
pub fn keep_cuts(cost: &mut ModelCost, wanted: &[CutBefore]) -> Result<(), CostError> {
    if wanted.is_empty() {
        return Ok(());
    }
    for cut in wanted {
        let at = cost.ops.iter().position(|op| op.name == cut.op).ok_or_else(|| unknown(cost, cut))?;
        if !cost.cuts.iter().any(|cut| cut.at == at) {
            return Err(CostError::NoCut(Box::new(impossible(cost, cut, at))));
        }
    }
    let ops = &cost.ops;
    cost.cuts.retain(|cut| wanted.iter().any(|wanted| wanted.op == ops[cut.at].name));
    Ok(())
}

fn unknown(cost: &ModelCost, cut: &CutBefore) -> ConfigError {
    let names = || cost.cuts.iter().map(|cut| cost.ops[cut.at].name.as_str());
    let mut known: Vec<String> = names().take(NAMED).map(str::to_owned).collect();
    if cost.cuts.len() > NAMED {
        known.push(format!("and {} more, as `phalanx model inspect` shows them", cost.cuts.len() - NAMED));
    }
    ConfigError::UnknownWord {
        key: "formation.cuts".to_owned(),
        what: "operator",
        word: cut.op.clone(),
        at: cut.source.clone(),
        words: Box::new(Words { nearest: nearest(&cut.op, names()).map(str::to_owned), known }),
    }
}

fn impossible(cost: &ModelCost, cut: &CutBefore, at: usize) -> NoCut {
    let before = cost.cuts.iter().rev().find(|cut| cut.at < at);
    let behind = cost.cuts.iter().find(|cut| cut.at > at);
    let near = before.into_iter().chain(behind).map(|cut| cost.ops[cut.at].name.clone()).collect();
    NoCut { op: cut.op.clone(), at: cut.source.clone(), first: at == 0, near }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_formation::{CutCost, OpCost};

    /// Four operators, of which the middle two share a parameter.
    fn cost() -> ModelCost {
        let op = |name: &str| OpCost { name: name.to_owned(), ..OpCost::default() };
        let cut = |at| CutCost { at, forward_bytes: 1, backward_bytes: 1 };
        ModelCost {
            ops: ["embed", "dense_1", "dense_2", "head"].map(op).into(),
            cuts: [1, 3].map(cut).into(),
        }
    }

    fn keep(ops: &[&str]) -> Result<Vec<usize>, CostError> {
        let source = Source::Flag("--set".to_owned());
        let cut = |op: &&str| CutBefore { op: (*op).to_owned(), source: source.clone() };
        let mut cost = cost();
        keep_cuts(&mut cost, &ops.iter().map(cut).collect::<Vec<_>>())?;
        Ok(cost.cuts.iter().map(|cut| cut.at).collect())
    }

    #[test]
    fn only_the_places_that_were_named_are_left() {
        assert_eq!(keep(&[]).unwrap(), [1, 3]);
        assert_eq!(keep(&["head"]).unwrap(), [3]);
    }

    #[test]
    fn what_is_no_place_to_cut_is_told_with_those_that_are() {
        for (op, says, hint) in [
            (
                "dense1",
                "unknown operator \"dense1\" for `formation.cuts` at --set; did you mean `dense_1`?",
                None,
            ),
            (
                "convolution",
                "unknown operator \"convolution\" for `formation.cuts` at --set; there are dense_1, head",
                None,
            ),
            (
                "embed",
                "`formation.cuts`: the model cannot be cut before `embed`: it is the first operator, at --set",
                Some("next to it the model can be cut before `dense_1`"),
            ),
            (
                "dense_2",
                "`formation.cuts`: the model cannot be cut before `dense_2`: a parameter is used on both sides of it, \
                 at --set",
                Some("next to it the model can be cut before `dense_1` and `head`"),
            ),
        ] {
            let error = keep(&[op]).unwrap_err();
            assert_eq!((error.to_string().as_str(), error.hint().as_deref()), (says, hint));
        }
    }
}

// Trains on samples that are computed when they are read.

use phalanx::data::{DataError, Dataset, Extent, LabelSchema, Origin, Rows, Schema, Source, conformance};
use phalanx::model::Builder;
use phalanx::{Training, train};
use std::sync::atomic::AtomicBool;

/// A wave at many places.
#[derive(Debug)]
struct Wave {
    len: usize,
}

impl Source for Wave {
    fn schema(&self) -> Schema {
        Schema::new([2], Origin::named("wave")).with_labels(LabelSchema::values([]))
    }

    fn extent(&self) -> Extent {
        Extent::Fixed(self.len)
    }

    fn read(&self, indices: &[usize], rows: Rows<'_>, _: &AtomicBool) -> Result<(), DataError> {
        if let Some(index) = indices.iter().copied().find(|index| *index >= self.len) {
            return Err(DataError::Index { index, len: self.len, origin: Origin::named("wave") });
        }
        let angle = |index: &usize| *index as f32 / self.len as f32 * 6.0;
        for (index, out) in indices.iter().zip(rows.x.into_iter().flat_map(|x| x.chunks_exact_mut(2))) {
            out.copy_from_slice(&[angle(index).cos(), angle(index).sin()]);
        }
        for (index, out) in indices.iter().zip(rows.y.into_iter().flatten()) {
            *out = (angle(index) + 1.0).sin();
        }
        Ok(())
    }
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    conformance::source_conformance(|| Box::new(Wave { len: 50 }));

    let mut b = Builder::new("phase");
    let x = b.input("x", &[2]);
    let y = b.linear("fc", x, 1);
    b.output(y);
    let training = Training::new(b.finish()?, Dataset::new(Wave { len: 500 })?).loss("mse");
    let trained = train(training.learning_rate(0.02).epochs(20))?;
    println!("loss {:?}", trained.summary().loss);
    assert!(trained.summary().loss.is_some_and(|loss| loss < 0.01));
    Ok(())
}

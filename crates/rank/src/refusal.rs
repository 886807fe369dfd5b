//! Why a node refuses a run, as far as another machine may know: nothing that is in a file is said.
//!
//! A node of the driver's own host that the driver has started itself may quote the driver's files.

use super::data_roots::DataRoots;
use crate::error::{FileProblem, RankError};
use phalanx_data::DataError;
use phalanx_records::with_causes;
use phalanx_train::{ModelError, TrainError};
use phalanx_wire::train_reason::{FileFault, FileRefusal, RankFailure, RunRefusal};

/// Why a rank does not take part.
pub(super) fn refusal_of(error: &RankError, roots: &DataRoots) -> RunRefusal {
    match error {
        RankError::NoLoss(missing) => RunRefusal::NoLoss { name: missing.name.as_str().into() },
        RankError::File { path, problem } => {
            RunRefusal::File { file: path.as_str().into(), refusal: refusal_of_file(problem) }
        }
        RankError::Train(train) if !roots.are_drivers() => match fault_in(train) {
            Some(fault) => RunRefusal::WrongFile { fault },
            None => RunRefusal::Unable { detail: with_causes(error).into() },
        },
        _ => RunRefusal::Unable { detail: with_causes(error).into() },
    }
}

/// Why a rank cannot go on with data that are wrong.
pub(super) fn wrong_input(error: &RankError, train: &TrainError, roots: &DataRoots) -> RankFailure {
    let hint = train.hint();
    match fault_in(train).filter(|_| !roots.are_drivers()) {
        Some(fault) => {
            // Hints about names quote them.
            let quotes = matches!(fault, FileFault::NoSuchArray | FileFault::ArrayNotNamed);
            let hint = hint.filter(|_| !quotes).map(Into::into);
            RankFailure::WrongInput { detail: fault.to_string().into(), hint }
        }
        None => RankFailure::WrongInput { detail: with_causes(error).into(), hint: hint.map(Into::into) },
    }
}

fn refusal_of_file(problem: &FileProblem) -> FileRefusal {
    match problem {
        FileProblem::Fetch { detail, .. } => FileRefusal::Fetch { detail: detail.as_str().into() },
        FileProblem::NoWay => FileRefusal::Fetch { detail: "there is no node to ask for it".into() },
        FileProblem::OtherBytes => FileRefusal::OtherBytes,
        FileProblem::NotListed => FileRefusal::NotListed,
        FileProblem::Name => FileRefusal::Name,
        FileProblem::TooLong { bytes, limit } => FileRefusal::TooLong { bytes: *bytes, limit: *limit },
        FileProblem::Write { .. } => FileRefusal::NotKept { detail: problem.to_string().into() },
    }
}

/// What is wrong with a file, for an error whose own words may quote the file.
pub fn fault_in(error: &TrainError) -> Option<FileFault> {
    match error {
        TrainError::Data(error) => Some(fault_of_data(error)),
        TrainError::Model(error) => match &**error {
            ModelError::Onnx { .. } => Some(FileFault::Onnx),
            ModelError::Layers { .. } => Some(FileFault::Layers),
            ModelError::Weights { .. } | ModelError::Incomplete { .. } => Some(FileFault::Weights),
            ModelError::Read { .. } => Some(FileFault::Unreadable),
            _ => None,
        },
        _ => None,
    }
}

fn fault_of_data(error: &DataError) -> FileFault {
    match error {
        DataError::Open { .. } | DataError::Read { .. } | DataError::Source { .. } => FileFault::Unreadable,
        DataError::UnknownArray { .. } => FileFault::NoSuchArray,
        DataError::ArrayNotNamed { .. } | DataError::ManyArrays { .. } => FileFault::ArrayNotNamed,
        DataError::NotANumber { line, .. } | DataError::Ragged { line, .. } => {
            FileFault::NotNumbers { line: *line }
        }
        DataError::MissingValue { row, .. }
        | DataError::ListLength { row, .. }
        | DataError::TooLarge { row, .. }
        | DataError::LabelNotFinite { row, .. }
        | DataError::LabelNotShare { row, .. } => FileFault::Row { row: *row },
        DataError::LabelOutOfRange { row, classes, .. } => {
            FileFault::Label { row: *row, classes: *classes as u64 }
        }
        DataError::UnknownClass { .. } => FileFault::UnknownClass,
        DataError::NoImages { .. } | DataError::Image { .. } | DataError::ImageSize { .. } => {
            FileFault::Image
        }
        DataError::Empty { .. }
        | DataError::Lengths { .. }
        | DataError::SampleShape { .. }
        | DataError::Uneven { .. }
        | DataError::NoLabels { .. }
        | DataError::NoSampleAxis { .. }
        | DataError::Transform { .. } => FileFault::Samples,
        _ => FileFault::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_file_is_told_to_another_machine() {
        let secret = "root:x:0:0";
        let errors = [
            DataError::UnknownArray {
                name: "x".to_owned(),
                have: vec![secret.to_owned()],
                file: "/data.csv".into(),
            },
            DataError::ArrayNotNamed { have: vec![secret.to_owned()], file: "/data.csv".into() },
            DataError::NotANumber {
                line: 2,
                column: secret.to_owned(),
                text: secret.to_owned(),
                file: "/data.csv".into(),
            },
        ];
        for error in errors {
            let error = RankError::from(error);
            let roots = DataRoots::default();
            let refusal = refusal_of(&error, &roots);
            assert!(matches!(refusal, RunRefusal::WrongFile { .. }), "{refusal:?}");
            let RankError::Train(train) = &error else { panic!("{error}") };
            let failure = wrong_input(&error, train, &roots);
            assert!(!format!("{refusal:?} {refusal} {failure:?}").contains("root:"), "{refusal} {failure}");
        }
    }
}

//! Groups of trainers whose shares the store gives out: trainers come and go, and every sample is used once per pass.

use super::link::{Answer, StreamLink, ms};
use super::{StreamError, StreamReader};
use phalanx_streams::{Assignment, ReaderEnding, StreamWait};
use phalanx_types::{Incarnation, TrainerId};
use std::time::Duration;

/// What a trainer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrainerAnswer {
    /// It computes its share of a step.
    Share(Assignment),
    /// It has to wait.
    Waiting(StreamWait),
    /// There are no more samples for it.
    Finished(ReaderEnding),
}

/// A member of the group of trainers of a reader, for programs whose batches the store gives out step by step.
#[derive(Debug)]
pub struct StreamTrainer {
    link: StreamLink,
    reader: String,
    reader_incarnation: Incarnation,
    id: TrainerId,
    incarnation: Incarnation,
    told: Option<&'static str>,
    share: Option<Assignment>,
}

impl StreamReader {
    /// A trainer of this reader, with a connection of its own.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn trainer(&self, id: TrainerId, incarnation: Incarnation) -> Result<StreamTrainer, StreamError> {
        let (link, reader) = self.parts();
        Ok(StreamTrainer {
            link: link.own()?,
            reader: reader.as_str().to_owned(),
            reader_incarnation: self.incarnation(),
            id,
            incarnation,
            told: None,
            share: None,
        })
    }
}

impl StreamTrainer {
    /// The next share: joins the group, or says that the last share is done. Waits at most `within`, and tells a new
    /// reason to wait at once. A share that was given before comes again if the group has changed: then the step has
    /// not counted.
    ///
    /// # Errors
    /// A newer life of the run or of this trainer is there, or the store cannot be reached in time.
    pub fn next(&mut self, done: bool, within: Duration) -> Result<TrainerAnswer, StreamError> {
        let share = self.share.filter(|_| done);
        let mut joins = share.is_none();
        let link = self.link.clone();
        let found = link.insist(
            Some(within),
            |wait| {
                let told = match (joins, share) {
                    (false, Some(share)) => self.ask(Some(share), wait),
                    _ => self.ask(None, wait),
                };
                // A trainer that is not in the group any more joins it; its step has counted or comes again.
                joins = joins || told.is_err();
                told
            },
            || Ok(()),
        )?;
        let answer = match found {
            Some(answer) => answer,
            None => {
                self.told = None;
                self.ask(None, Duration::ZERO)?
                    .ok_or_else(|| super::link::unexpected("no answer to a trainer"))?
            }
        };
        if let TrainerAnswer::Share(share) = &answer {
            self.share = Some(*share);
        }
        Ok(answer)
    }

    fn ask(
        &mut self,
        done: Option<Assignment>,
        wait: Duration,
    ) -> Result<Option<TrainerAnswer>, StreamError> {
        let seen = self.told.unwrap_or("-");
        let (reader_life, life, wait_ms) =
            (self.reader_incarnation.0.to_string(), self.incarnation.0.to_string(), ms(wait));
        let mut words = vec![self.reader.clone(), reader_life, self.id.as_str().to_owned(), life];
        if let Some(share) = done {
            let Assignment { epoch, cursor, .. } = share;
            words.extend([epoch.0, cursor.pass, cursor.step + 1].map(|number| number.to_string()));
        }
        words.extend([seen.to_owned(), wait_ms]);
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let verb = if done.is_some() { "DONE" } else { "JOIN" };
        let answer: Answer = self.link.ask(verb, &words, Some(wait))?;
        if let Some(reason) = answer.wait()? {
            let kind = reason.kind();
            if Some(kind) == self.told {
                return Ok(None);
            }
            self.told = Some(kind);
            return Ok(Some(TrainerAnswer::Waiting(reason)));
        }
        self.told = None;
        match answer.is("FINISHED") {
            true => answer.json_at(0).map(TrainerAnswer::Finished).map(Some),
            false => answer.json_at(0).map(TrainerAnswer::Share).map(Some),
        }
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub fn leave(self) -> Result<(), StreamError> {
        let (reader_life, life) = (self.reader_incarnation.0.to_string(), self.incarnation.0.to_string());
        let words = [self.reader.as_str(), &reader_life, self.id.as_str(), &life].map(str::as_bytes);
        self.link.ask("LEAVE", &words, None).map(|_left| ())
    }
}

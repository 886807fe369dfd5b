use crate::escape::lines;

/// Why a command ends without success, and the exit code that says so.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    error: anyhow::Error,
    hint: Option<String>,
    /// Another exit code than that of the kind.
    code: Option<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// The work was done and failed.
    Work = 1,
    /// The command line or an input is wrong.
    Usage = 2,
    /// Something this command needs is not there or broke.
    Infrastructure = 3,
}

impl Failure {
    pub(crate) fn work(error: impl Into<anyhow::Error>) -> Self {
        Self { kind: Kind::Work, error: error.into(), hint: None, code: None }
    }

    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { kind: Kind::Usage, error: error.into(), hint: None, code: None }
    }

    pub(crate) fn infrastructure(error: impl Into<anyhow::Error>) -> Self {
        Self { kind: Kind::Infrastructure, error: error.into(), hint: None, code: None }
    }

    /// Ends with the exit code of a program that was run, if it is one.
    pub(crate) fn exit_code(mut self, code: i32) -> Self {
        self.code = u8::try_from(code).ok().filter(|code| *code != 0);
        self
    }

    /// Adds what the user can do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same, when there is something.
    pub(crate) fn hint_if(self, hint: Option<impl Into<String>>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    #[expect(clippy::print_stderr, reason = "the one place that reports errors to the user")]
    pub(crate) fn report(&self) -> u8 {
        // Names and reasons in it may be those of others.
        eprintln!("error: {}", lines(&self.error.to_string()));
        for cause in self.error.chain().skip(1) {
            eprintln!("  caused by: {}", lines(&cause.to_string()));
        }
        if let Some(hint) = &self.hint {
            eprintln!("hint: {}", lines(hint));
        }
        self.code.unwrap_or(self.kind as u8)
    }
}

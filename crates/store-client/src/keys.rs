//! Which key a name means: prefixes by kind, as SmartRedis has them.

/// Prefixes of a client's keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// What this program writes begins with this.
    pub writes: Option<String>,
    /// What this program reads begins with this.
    pub reads: Option<String>,
    /// The programs that it may read from.
    pub sources: Vec<String>,
    pub tensors: bool,
    pub datasets: bool,
    pub lists: bool,
    pub models: bool,
}

impl Keys {
    /// The prefixes that a launcher set: `SSKEYOUT` and `SSKEYIN`, with a suffix where there is one.
    pub fn from_environment(suffix: &str) -> Self {
        let get =
            |name: &str| std::env::var(format!("{name}{suffix}")).ok().filter(|value| !value.is_empty());
        let sources: Vec<String> =
            get("SSKEYIN").map(|all| all.split(',').map(str::to_owned).collect()).unwrap_or_default();
        Self {
            writes: get("SSKEYOUT"),
            reads: sources.first().cloned(),
            sources,
            tensors: true,
            datasets: true,
            lists: true,
            models: false,
        }
    }

    fn with(prefix: Option<&String>, is_on: bool, name: &str) -> String {
        match prefix.filter(|_| is_on) {
            Some(prefix) => format!("{prefix}.{name}"),
            None => name.to_owned(),
        }
    }

    pub(crate) fn tensor(&self, name: &str, access: Access) -> String {
        Self::with(self.prefix(access), self.tensors, name)
    }

    /// What a dataset's keys begin with, and what a list has of it. The braces keep its keys on one node of a cluster.
    pub(crate) fn dataset(&self, name: &str, access: Access) -> String {
        Self::with(self.prefix(access), self.datasets, &format!("{{{name}}}"))
    }

    pub(crate) fn list(&self, name: &str, access: Access) -> String {
        Self::with(self.prefix(access), self.lists, name)
    }

    fn prefix(&self, access: Access) -> Option<&String> {
        match access {
            Access::Read => self.reads.as_ref(),
            Access::Write => self.writes.as_ref(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_the_prefix_of_their_kind_and_access() {
        let mut keys = Keys { writes: Some("out".into()), reads: Some("in".into()), ..Keys::default() };
        assert_eq!(keys.tensor("x", Access::Read), "x");
        (keys.tensors, keys.datasets, keys.lists) = (true, true, true);
        assert_eq!(keys.tensor("x", Access::Read), "in.x");
        assert_eq!(keys.tensor("x", Access::Write), "out.x");
        assert_eq!(keys.dataset("d", Access::Write), "out.{d}");
        assert_eq!(keys.list("l", Access::Read), "in.l");
        keys.reads = None;
        assert_eq!(keys.list("l", Access::Read), "l");
    }
}

/// Keys that changed, by their slots. Clients that keep views of values learn so that a view is old.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Touched {
    /// The slot of every key that was written, removed or given an end.
    pub slots: Vec<u16>,
    /// All keys are gone.
    pub all: bool,
}

impl Touched {
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.all = false;
    }

    pub(crate) fn take_from(&mut self, other: &mut Touched) {
        self.slots.append(&mut other.slots);
        self.all |= std::mem::take(&mut other.all);
    }
}

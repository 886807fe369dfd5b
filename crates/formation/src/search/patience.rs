use std::fmt;

/// Small things between two questions: asking costs about as much as one of them.
const ITEMS: u32 = 64;

/// How long a caller is willing to wait. Once it has said no, it is not asked again.
pub(crate) struct Patience<'a> {
    keep_going: &'a mut dyn FnMut() -> bool,
    items: u32,
    over: bool,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(keep_going: &'a mut dyn FnMut() -> bool) -> Self {
        Self { keep_going, items: 0, over: false }
    }

    /// Whether to go on, asked now: before anything that takes as long as looking at a formation.
    pub(crate) fn lasts(&mut self) -> bool {
        self.over = self.over || !(self.keep_going)();
        !self.over
    }

    /// Whether to go on with one more of many small things, asked now and then.
    pub(crate) fn lasts_for_one(&mut self) -> bool {
        self.items = (self.items + 1) % ITEMS;
        if self.items == 0 { self.lasts() } else { !self.over }
    }

    /// Whether it has ended already, without asking.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }
}

impl fmt::Debug for Patience<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience")
            .field("items", &self.items)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_said_no_is_not_asked_again() {
        let mut asked = 0;
        let mut twice = || {
            asked += 1;
            asked < 3
        };
        let mut patience = Patience::new(&mut twice);
        assert!(patience.lasts());
        let items = (0..1000).take_while(|_| patience.lasts_for_one()).count();
        assert!(items < 2 * ITEMS as usize, "{items}");
        assert!(patience.is_over() && !patience.lasts() && !patience.lasts_for_one());
        assert_eq!(asked, 3);
    }
}

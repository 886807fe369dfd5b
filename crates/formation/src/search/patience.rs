use std::fmt;

/// Small items between two calls of `keep_going`: a call costs about as much as one of them.
const ITEMS: u32 = 64;

/// How long the caller is willing to wait. Once it has returned false, it is not called again.
pub(crate) struct Patience<'a> {
    keep_going: &'a mut dyn FnMut() -> bool,
    items: u32,
    over: bool,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(keep_going: &'a mut dyn FnMut() -> bool) -> Self {
        Self { keep_going, items: 0, over: false }
    }

    /// Asks the caller now: before anything that takes as long as an evaluation.
    pub(crate) fn lasts(&mut self) -> bool {
        self.over = self.over || !(self.keep_going)();
        !self.over
    }

    /// Asks the caller now and then, for one more of many small items.
    pub(crate) fn lasts_for_one(&mut self) -> bool {
        self.items = (self.items + 1) % ITEMS;
        if self.items == 0 { self.lasts() } else { !self.over }
    }

    /// Whether it is over already, without asking.
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

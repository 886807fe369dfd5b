/// Where a core puts the commands that its shell carries out, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outbox<C> {
    commands: Vec<C>,
}

impl<C> Default for Outbox<C> {
    fn default() -> Self {
        Self { commands: Vec::new() }
    }
}

impl<C> Outbox<C> {
    pub fn push(&mut self, command: C) {
        self.commands.push(command);
    }

    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Takes every command, keeping the allocation for the next event.
    pub fn drain(&mut self) -> std::vec::Drain<'_, C> {
        self.commands.drain(..)
    }

    /// The commands so far, for tests that compare the whole list.
    pub fn commands(&self) -> &[C] {
        &self.commands
    }
}

//! The steps of a borrowed thread, for messages.

use std::fmt;

/// A step of an injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Borrowing the thread.
    Borrow,
    /// A system call, by its name in the manual.
    SystemCall(&'static str),
    /// The call of `dlopen` that loads the helper.
    Dlopen,
    /// The call of `speed_bump_attach` in the helper.
    Attach,
    /// Giving the thread back.
    Return,
}

impl Stage {
    /// What stays in the process if we take the thread out of this step.
    pub(super) fn leaves(self) -> &'static str {
        match self {
            Self::Dlopen => {
                "Not undone: what dlopen had begun. If it waited for the dynamic loader's lock, that is \
                 nothing; else the lock and some memory may stay taken, and later dlopen calls of the \
                 process may hang"
            }
            Self::Attach => {
                "Not undone: the helper is loaded and may have started its thread, which finds its session \
                 gone and ends"
            }
            Self::Borrow | Self::SystemCall(_) | Self::Return => "Nothing was left behind",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Borrow => f.write_str("being stopped"),
            Self::SystemCall(call) => f.write_str(call),
            Self::Dlopen => f.write_str("dlopen"),
            Self::Attach => f.write_str("speed_bump_attach"),
            Self::Return => f.write_str("being let go"),
        }
    }
}

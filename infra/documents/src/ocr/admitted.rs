use super::{Link, Recognised, Recogniser, Task};
use crate::failure::Failure;

/// Recognises in this process, once the parent has admitted it: recognition takes long, so it has places of its own.
pub(crate) struct Admitted<'a> {
    link: &'a mut dyn Link,
    recogniser: &'a mut dyn Recogniser,
    is_admitted: bool,
}

impl<'a> Admitted<'a> {
    pub(crate) fn new(link: &'a mut dyn Link, recogniser: &'a mut dyn Recogniser) -> Self {
        Self { link, recogniser, is_admitted: false }
    }
}

impl Recogniser for Admitted<'_> {
    fn name(&self) -> &'static str {
        self.recogniser.name()
    }

    fn languages(&self) -> &[String] {
        self.recogniser.languages()
    }

    fn begin(&mut self, task: Task, language: &str) -> Result<(), Failure> {
        if !self.is_admitted {
            self.link.admit()?;
            self.is_admitted = true;
        }
        self.recogniser.begin(task, language)
    }

    fn finish(&mut self) -> Result<Vec<Recognised>, Failure> {
        self.recogniser.finish()
    }

    fn left_out(&mut self) -> Vec<usize> {
        self.recogniser.left_out()
    }

    fn abandon(&mut self) {
        self.recogniser.abandon();
    }
}

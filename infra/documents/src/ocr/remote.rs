use super::{Recognised, Recogniser, Task};
use crate::failure::Failure;

/// Pictures that a service has at the same time.
pub(crate) const AT_ONCE: usize = 4;

/// Somebody outside of this process who recognises: it has no network of its own.
pub(crate) trait Link {
    /// Sends a picture; at most [`AT_ONCE`] before they are asked for.
    fn send(&mut self, task: Task) -> Result<(), Failure>;
    /// Waits for what was recognised on the pictures since the last call.
    fn receive(&mut self) -> Result<Vec<Recognised>, Failure>;
    /// Waits until this process may recognise pages itself.
    fn admit(&mut self) -> Result<(), Failure>;
}

/// Recognises by asking the process that started this one.
pub(crate) struct Remote<'a> {
    link: &'a mut dyn Link,
    name: &'static str,
    languages: Vec<String>,
    sent: usize,
    found: Vec<Recognised>,
}

impl<'a> Remote<'a> {
    pub(crate) fn new(link: &'a mut dyn Link, name: &'static str, languages: &[String]) -> Self {
        Self { link, name, languages: languages.to_vec(), sent: 0, found: Vec::new() }
    }

    fn collect(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.sent) > 0 {
            self.found.extend(self.link.receive()?);
        }
        Ok(())
    }
}

impl Recogniser for Remote<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn languages(&self) -> &[String] {
        &self.languages
    }

    fn begin(&mut self, task: Task, _: &str) -> Result<(), Failure> {
        self.link.send(task)?;
        self.sent += 1;
        if self.sent == AT_ONCE { self.collect() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<Vec<Recognised>, Failure> {
        self.collect()?;
        Ok(std::mem::take(&mut self.found))
    }

    fn abandon(&mut self) {
        self.found.clear();
    }
}

use super::{Recognised, Recogniser, Task};
use crate::failure::Failure;

/// Somebody outside of this process who recognises: it has no network of its own.
pub(crate) trait Link {
    /// Sends a picture and waits for what was recognised on it.
    fn recognise(&mut self, task: Task) -> Result<Recognised, Failure>;
}

/// Recognises by asking the process that started this one.
pub(crate) struct Remote<'a> {
    link: &'a mut dyn Link,
    name: &'static str,
    languages: Vec<String>,
    found: Vec<Recognised>,
}

impl<'a> Remote<'a> {
    pub(crate) fn new(link: &'a mut dyn Link, name: &'static str, languages: &[String]) -> Self {
        Self { link, name, languages: languages.to_vec(), found: Vec::new() }
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
        let recognised = self.link.recognise(task)?;
        self.found.push(recognised);
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<Recognised>, Failure> {
        Ok(std::mem::take(&mut self.found))
    }

    fn abandon(&mut self) {
        self.found.clear();
    }
}

use serde::{Deserialize, Serialize};

/// A JSON pointer (RFC 6901) to a field of a request, such as `/retry/max_attempts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FieldPointer(String);

impl FieldPointer {
    /// The pointer to `path`: the names of the fields from the outermost one on, separated by dots.
    pub fn to(path: &str) -> Self {
        path.split('.').collect()
    }

    /// The same field of the object in `parent`.
    #[must_use]
    pub fn within(self, parent: &Self) -> Self {
        Self(format!("{}{}", parent.0, self.0))
    }

    /// The pointer as clients read it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The pointer with these segments, the outermost first.
impl<S: AsRef<str>> FromIterator<S> for FieldPointer {
    fn from_iter<I: IntoIterator<Item = S>>(segments: I) -> Self {
        let mut pointer = String::new();
        for segment in segments {
            pointer.push('/');
            pointer.push_str(&segment.as_ref().replace('~', "~0").replace('/', "~1"));
        }
        Self(pointer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_follow_rfc_6901() {
        assert_eq!(FieldPointer::to("name").as_str(), "/name");
        assert_eq!(FieldPointer::to("retry.max_attempts").as_str(), "/retry/max_attempts");
        let odd: FieldPointer = ["a/b", "~", "0"].into_iter().collect();
        assert_eq!(odd.within(&FieldPointer::to("labels")).as_str(), "/labels/a~1b/~0/0");
    }
}

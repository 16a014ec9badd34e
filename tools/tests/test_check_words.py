"""Tests of tools/check-words."""

import unittest

from script import load

check_words = load("check-words")


class Labels(unittest.TestCase):
    def assert_labels(self, line, *expected, is_document=False):
        self.assertEqual(sorted(check_words.labels(line, is_document)), sorted(expected), line)

    def test_openings_count_in_comments_and_documents(self):
        self.assert_labels("    /// What a process has seen.", "What…")
        self.assert_labels("//! Whose turn it is.", "Who…")
        self.assert_labels('    """What was seen."""', "What…")
        self.assert_labels("What was measured", "What…", is_document=True)
        self.assert_labels("## What it costs", "What…", is_document=True)
        self.assert_labels("What::now();")
        self.assert_labels("/// whose words continue the line before.")
        self.assert_labels("/// States what was seen.")

    def test_phrases_of_plain_english_do_not_count(self):
        self.assert_labels("// There is no lock, there is none, and it is no longer read.")
        self.assert_labels("// A server that is none is no replica.", "is none", "is no")

    def test_names_are_split_into_words(self):
        self.assert_labels("fn told_once(patience: Duration) {", "tell", "patience")
        self.assert_labels("struct WebhookConsignments;", "consignment")
        self.assert_labels("const PATIENCE: u8 = 1;", "patience")
        self.assert_labels("let storyboard = history();")

    def test_who_counts_in_names_only(self):
        self.assert_labels("async fn list(who: Who) {", "who", "who")
        self.assert_labels("// Users who may read.")
        self.assert_labels('let title = "Users who may read";')

    def test_each_occurrence_counts(self):
        self.assert_labels("// It tells a user, and is told.", "tell", "tell")


class Limits(unittest.TestCase):
    def test_counts_are_compared_with_limits(self):
        risen, fallen = check_words.compared({"tell": 3, "die": 1, "news": 2}, {"tell": 2, "die": 4, "news": 2})
        self.assertEqual((risen, fallen), ([("tell", 2, 3)], [("die", 4, 1)]))

    def test_word_without_a_limit_may_not_stand(self):
        self.assertEqual(check_words.compared({"tell": 1}, {})[0], [("tell", 0, 1)])

    def test_counts_have_a_total(self):
        counts = check_words.counted([("a.rs", "// told\n// told"), ("b.md", "What dies")])
        self.assertEqual((counts["tell"], counts["What…"], counts["die"], counts["in all"]), (2, 1, 1, 4))


if __name__ == "__main__":
    unittest.main()

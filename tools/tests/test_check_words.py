"""Tests of tools/check-words."""

import unittest

from script import load

check_words = load("check-words")


class Labels(unittest.TestCase):
    def assert_labels(self, line, *expected, is_prose=False):
        self.assertEqual(sorted(check_words.labels(line, is_prose)), sorted(expected), line)

    def test_openings_count_in_comments_and_documents(self):
        self.assert_labels("    /// What a process has seen.", "What…")
        self.assert_labels("//! Whose turn it is.", "Who…")
        self.assert_labels('    """What was seen."""', "What…")
        self.assert_labels("What was measured", "What…", is_prose=True)
        self.assert_labels("## What it costs", "What…", is_prose=True)
        self.assert_labels("What::now();")
        self.assert_labels("/// whose words continue the line before.")
        self.assert_labels("/// States what was seen.")

    def test_openings_count_after_a_sentence_a_colon_and_a_semicolon(self):
        self.assert_labels("/// Reads the log. What is new counts.", "What…")
        self.assert_labels("// Two parts: what was read, and who read it.", "What…")
        self.assert_labels("// Kept; whoever asks gets it. (What else?)", "Who…", "whoever", "What…")
        self.assert_labels("**Decided.** What is staged stays.", "What…", is_prose=True)
        self.assert_labels('  description: "What is behind"', "What…", is_prose=True)
        self.assert_labels('  "title": "Whose turn it is",', "Who…", is_prose=True)

    def test_openings_do_not_count_in_code_and_within_a_clause(self):
        self.assert_labels("/// States what was seen, e.g. what was read.")
        self.assert_labels("/// A pair `name: What` of a field.")
        self.assert_labels("let kind: What = what; what();")
        self.assert_labels("/// The parts: whatsoever.")

    def test_phrases_of_plain_english_do_not_count(self):
        self.assert_labels("// There is no lock, there is none, and it is no longer read.")
        self.assert_labels("// A server that is none is no replica.", "is none", "is no")

    def test_names_are_split_into_words(self):
        self.assert_labels("fn told_once(patience: Duration) {", "tell", "patience")
        self.assert_labels("struct WebhookConsignments;", "consignment")
        self.assert_labels("const PATIENCE: u8 = 1;", "patience")
        self.assert_labels("let storyboard = history();")

    def test_functions_with_long_names_count(self):
        self.assert_labels(f"async fn {'a' * 61}() {{", "name of more than 60 letters")
        self.assert_labels(f"    def test_{'a' * 60}(self):", "name of more than 60 letters")
        self.assert_labels(f"fn {'a' * 60}() {{")
        self.assert_labels(f"let {'a' * 61} = 1;")

    def test_who_counts_in_names_only(self):
        self.assert_labels("async fn list(who: Who) {", "who", "who")
        self.assert_labels("// Users who may read.")
        self.assert_labels('let title = "Users who may read";')

    def test_each_occurrence_counts(self):
        self.assert_labels("// It tells a user, and is told.", "tell", "tell")


class Files(unittest.TestCase):
    def test_files_that_people_write_are_counted(self):
        for path in ["domain/src/lib.rs", "deploy/a.yml", "b.yaml", "deploy/grafana/c.json", "console/src/app.css", "console/index.html",
                     "tests/chaos/d.c", "deploy/e.service", "Makefile", "tools/demo", "infra/database/migrations/README.md"]:
            self.assertTrue(check_words.is_counted(path), path)

    def test_released_migrations_generated_files_and_fixtures_are_not_counted(self):
        for path in ["infra/database/migrations/0001_log.sql", "console/openapi.json", "console/package-lock.json", "tools/words.json",
                     "gateway/src/openapi/examples.json", "clients/typescript/schema.d.ts", "infra/event_store/tests/golden/a/b.v1.json",
                     "Cargo.lock", "LICENSE"]:
            self.assertFalse(check_words.is_counted(path), path)

    def test_values_are_prose_as_documents_are(self):
        self.assertTrue(all(check_words.is_document(path) for path in ["a.md", "b.yml", "c.json", "d.service"]))
        self.assertFalse(any(check_words.is_document(path) for path in ["a.rs", "b.css", "Makefile"]))


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

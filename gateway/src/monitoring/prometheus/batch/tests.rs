use super::{super::messages::NotTaken, *};

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct RequestV2 {
    #[prost(bytes = "vec", repeated, tag = "4")]
    symbols: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "5")]
    timeseries: Vec<TimeSeriesV2>,
}

fn zipped(message: &impl Message) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(&message.encode_to_vec()).unwrap()
}

fn series(labels: &[(&str, &str)], samples: &[(f64, i64)]) -> TimeSeries {
    let label = |(name, value): &(&str, &str)| Label { name: (*name).into(), value: (*value).into() };
    TimeSeries {
        labels: labels.iter().map(label).collect(),
        samples: samples
            .iter()
            .map(|(value, timestamp)| Sample { value: *value, timestamp: *timestamp })
            .collect(),
        histograms: Vec::new(),
    }
}

fn read(timeseries: Vec<TimeSeries>) -> Batch {
    Batch::read(&zipped(&WriteRequest { timeseries }), Version::One).unwrap()
}

fn names(batch: &Batch) -> Vec<String> {
    (0..batch.series.len()).map(|index| batch.name(index)).collect()
}

#[test]
fn samples_are_values_of_their_series() {
    let batch = read(vec![
        series(&[("__name__", "up"), ("job", "a\"b"), ("empty", "")], &[(1.0, 1000), (0.0, 2000)]),
        series(&[("__name__", "down")], &[(2.5, 1500)]),
    ]);
    assert_eq!(names(&batch), [r#"up{job="a\"b"}"#, "down"]);
    let values: Vec<_> = batch.values.iter().map(|value| (value.series, value.value)).collect();
    assert_eq!(values, [(0, 1.0), (0, 0.0), (1, 2.5)]);
    assert_eq!(batch.values[2].time.map(|time| time.timestamp_micros()), Some(1_500_000));
    assert_eq!(batch.places, [0, 0, 1]);
}

#[test]
fn values_that_are_no_numbers_are_left_out() {
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let samples = [(f64::NAN, 1), (f64::INFINITY, 2), (stale, 3), (1.0, 4)];
    let batch =
        read(vec![series(&[("__name__", "a")], &samples), series(&[("__name__", "b")], &samples[..3])]);
    assert_eq!((batch.values.len(), batch.series.len(), batch.not_numbers), (1, 1, 6));
}

#[test]
fn bad_series_are_named_and_the_others_read() {
    let batch = read(vec![
        series(&[("job", "a")], &[(1.0, 1)]),
        series(&[("__name__", "a"), ("x", "1"), ("x", "2")], &[(1.0, 1)]),
        series(&[("__name__", "a")], &[(1.0, i64::MAX), (2.0, 2)]),
        series(&[("__name__", "a b")], &[(1.0, 1)]),
        TimeSeries {
            labels: vec![Label { name: NAME.into(), value: vec![0xff] }],
            ..series(&[], &[(1.0, 1)])
        },
    ]);
    let faults: Vec<_> = (0..5).map(|index| batch.series.labels(index).err()).collect();
    let expected = [
        Some("it has no label __name__"),
        Some("two of its labels have the same name"),
        None,
        Some("its label __name__ is not the name of a metric"),
        Some("its labels are not UTF-8"),
    ];
    assert_eq!(faults, expected);
    assert_eq!(names(&batch), ["", "", "a", "", ""]);
    assert_eq!((batch.places.as_slice(), batch.samples), (&[0, 1, 2, 3, 4][..], 6));
    assert_eq!(batch.faults.keys().copied().collect::<Vec<_>>(), [2]);
    let partly = &batch.faults[&2];
    assert_eq!((partly.series.as_str(), partly.refused, partly.samples), ("a", 1, 2));
}

#[test]
fn the_same_labels_have_the_same_name_in_both_versions() {
    let one = read(vec![series(&[("__name__", "up"), ("job", "a")], &[(1.0, 1)])]);
    let symbols = ["", "a", "job", "up", "__name__"].map(Vec::from).to_vec();
    let samples = vec![Sample { value: 1.0, timestamp: 1 }];
    let timeseries = vec![TimeSeriesV2 { labels_refs: vec![4, 3, 2, 1], samples, histograms: Vec::new() }];
    let two = Batch::read(&zipped(&RequestV2 { symbols, timeseries }), Version::Two).unwrap();
    assert_eq!(format!("{:?}", one.series), format!("{:?}", two.series));
}

#[test]
fn a_body_of_the_other_version_is_refused() {
    let one = WriteRequest { timeseries: vec![series(&[("__name__", "up")], &[(1.0, 1)])] };
    let two = RequestV2 { symbols: vec![Vec::new()], timeseries: Vec::new() };
    for (body, version) in [(zipped(&one), Version::Two), (zipped(&two), Version::One)] {
        let refused = Batch::read(&body, version).unwrap_err();
        assert!(refused.detail().contains("but its Content-Type"), "{}", refused.detail());
    }
}

#[test]
fn version_2_names_labels_by_symbols() {
    let symbols = ["", "__name__", "up", "job", "a"].map(Vec::from).to_vec();
    let one = |labels_refs: &[u32]| TimeSeriesV2 {
        labels_refs: labels_refs.to_vec(),
        samples: vec![Sample { value: 1.0, timestamp: 1000 }],
        histograms: vec![NotTaken {}],
    };
    let timeseries = vec![one(&[1, 2, 3, 4]), one(&[1, 2, 3]), one(&[1, 9])];
    let batch = Batch::read(&zipped(&RequestV2 { symbols, timeseries }), Version::Two).unwrap();
    assert_eq!(names(&batch), ["up{job=\"a\"}"]);
    assert_eq!((batch.series.len(), batch.histograms), (1, 3));
    assert_eq!(batch.faults.keys().copied().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn long_symbols_that_are_named_again_and_again_are_refused_series_by_series() {
    let symbols = vec![NAME.into(), b"up".to_vec(), b"job".to_vec(), vec![b'x'; 4 << 20]];
    let one = |labels_refs: Vec<u32>| TimeSeriesV2 {
        labels_refs,
        samples: vec![Sample { value: 1.0, timestamp: 1000 }],
        histograms: Vec::new(),
    };
    let many = std::iter::repeat_n(3, 2_000_000).collect();
    let timeseries = vec![one(vec![0, 1, 2, 3]), one(many), one(vec![0, 1]), one([2, 1].repeat(100_000))];
    let batch = Batch::read(&zipped(&RequestV2 { symbols, timeseries }), Version::Two).unwrap();
    assert_eq!(names(&batch), ["up"]);
    assert_eq!(batch.faults.keys().copied().collect::<Vec<_>>(), [0, 1, 3]);
    let nothing = TimeSeriesV2 { labels_refs: vec![9], samples: Vec::new(), histograms: Vec::new() };
    let nothing = RequestV2 { symbols: Vec::new(), timeseries: vec![nothing; 10] };
    assert!(Batch::read(&zipped(&nothing), Version::Two).unwrap().faults.is_empty());
}

#[test]
fn too_many_samples_are_refused() {
    let samples = |count: usize| vec![(0.0, 0); count];
    let read = |counts: &[usize], name: &str| {
        let timeseries = counts.iter().map(|count| series(&[(name, "a")], &samples(*count))).collect();
        Batch::read(&zipped(&WriteRequest { timeseries }), Version::One)
    };
    assert_eq!(read(&[MAX_SAMPLES - 1, 1], NAME).unwrap().samples, MAX_SAMPLES);
    for counts in [&[MAX_SAMPLES, 1][..], &[4_000_000]] {
        assert!(read(counts, NAME).unwrap_err().detail().contains("more than"));
    }
    assert!(read(&[MAX_SAMPLES, 1], &"x".repeat(80 << 10)).is_err());
}

#[test]
fn values_that_are_no_numbers_leave_the_others_in_the_request() {
    // Stale markers may be many; none takes the place of a sample.
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    for (stales, numbers) in [(1, MAX_SAMPLES), (MAX_SAMPLES + 1, 3), (1, MAX_SAMPLES + 50_000)] {
        let samples = [vec![(stale, 0); stales], vec![(0.0, 0); numbers]].concat();
        let one = series(&[(NAME, "a")], &samples);
        let two =
            TimeSeriesV2 { labels_refs: vec![0, 1], samples: one.samples.clone(), histograms: Vec::new() };
        let symbols = vec![NAME.into(), b"a".to_vec()];
        for read in [
            Batch::read(&zipped(&WriteRequest { timeseries: vec![one] }), Version::One),
            Batch::read(&zipped(&RequestV2 { symbols, timeseries: vec![two] }), Version::Two),
        ] {
            match read {
                Ok(batch) => assert_eq!(
                    (batch.values.len(), batch.not_numbers, numbers <= MAX_SAMPLES),
                    (numbers, stales as u64, true)
                ),
                Err(refusal) => {
                    assert!(numbers > MAX_SAMPLES && refusal.detail().contains("more than"), "{refusal:?}");
                }
            }
        }
    }
}

#[test]
fn bodies_that_cannot_be_read_are_refused() {
    let garbage = snap::raw::Encoder::new().compress_vec(b"garbage").unwrap();
    let sample = series(&[("__name__", "a")], &[(1.0, 1)]).encode_to_vec();
    let cut = [&[0x0a, sample.len() as u8 - 1][..], &sample[..sample.len() - 1]].concat();
    let cut = snap::raw::Encoder::new().compress_vec(&cut).unwrap();
    for body in [&b""[..], b"garbage", &garbage, &cut] {
        assert!(Batch::read(body, Version::One).is_err(), "{body:?}");
    }
    let bomb = snap::raw::Encoder::new().compress_vec(&vec![0; MAX_BYTES + 1]).unwrap();
    let refusal = Batch::read(&bomb, Version::One).unwrap_err();
    assert!(refusal.detail().contains("larger than"), "{refusal:?}");
}

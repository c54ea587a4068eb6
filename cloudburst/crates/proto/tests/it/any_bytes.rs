//! Not as good as a fuzzer, and always there: any bytes after each seed of a corpus.

/// Each seed so many `times`, with so many bytes behind it that are the same in each run.
pub(crate) fn after_each(
    seeds: impl IntoIterator<Item = Vec<u8>>,
    times: usize,
    bytes: usize,
) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 1u64;
    let mut any = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    let each = seeds.into_iter().flat_map(move |seed| vec![seed; times]);
    each.map(move |mut input| {
        input.extend((0..bytes).map(|_| any()));
        input
    })
}

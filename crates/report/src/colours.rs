//! The palette of plots and pages, for light and for dark themes.

/// How many colours the style sheet has.
pub(crate) const PALETTE: usize = 12;

/// Colours of plots and pages, for light and for dark. The palette is Okabe and Ito's, which
/// readers with colour vision deficiencies can tell apart, darkened or lightened for contrast.
/// Programs that know no variables, as most that convert SVG, take the plain colours in front.
pub const COLOURS: &str = "
:root { --ground: #ffffff; --ink: #1d2430; --dim: #5b6472; --grid: #d9dee6; --faint: #eef1f5;
  --c0: #c44e00; --c1: #b07d00; --c2: #0072b2; --c3: #008a63; --c4: #b0508f; --c5: #3a8fc4; --c6: #6b6b00; --c7: #444444; --c8: #7a4fd0; --c9: #a03030; --c10: #1f7a1f; --c11: #8a5a2b; }
@media (prefers-color-scheme: dark) {
:root { --ground: #14181f; --ink: #e6e9ee; --dim: #a3acb9; --grid: #343c48; --faint: #222831;
  --c0: #ff8a4c; --c1: #f0b93a; --c2: #56b4e9; --c3: #2fd0a0; --c4: #e59ac8; --c5: #8fc7f0; --c6: #d9d94a; --c7: #bbbbbb; --c8: #b39bff; --c9: #ff7b7b; --c10: #8fe08f; --c11: #d0a070; } }
.ground { fill: #ffffff; fill: var(--ground); }
.ink { fill: #1d2430; fill: var(--ink); }
.dim { fill: #5b6472; fill: var(--dim); }
.grid { stroke: #d9dee6; stroke: var(--grid); }
.faint { stroke: #eef1f5; stroke: var(--faint); }
.axis { stroke: #5b6472; stroke: var(--dim); }
.fill0 { fill: #c44e00; fill: var(--c0); }
.fill1 { fill: #b07d00; fill: var(--c1); }
.fill2 { fill: #0072b2; fill: var(--c2); }
.fill3 { fill: #008a63; fill: var(--c3); }
.fill4 { fill: #b0508f; fill: var(--c4); }
.fill5 { fill: #3a8fc4; fill: var(--c5); }
.fill6 { fill: #6b6b00; fill: var(--c6); }
.fill7 { fill: #444444; fill: var(--c7); }
.fill8 { fill: #7a4fd0; fill: var(--c8); }
.fill9 { fill: #a03030; fill: var(--c9); }
.fill10 { fill: #1f7a1f; fill: var(--c10); }
.fill11 { fill: #8a5a2b; fill: var(--c11); }
.stroke0, .stroke1, .stroke2, .stroke3, .stroke4, .stroke5, .stroke6, .stroke7, .stroke8, .stroke9, .stroke10, .stroke11 {
  fill: none; stroke-width: 2; stroke-linejoin: round; }
.stroke0 { stroke: #c44e00; stroke: var(--c0); }
.stroke1 { stroke: #b07d00; stroke: var(--c1); }
.stroke2 { stroke: #0072b2; stroke: var(--c2); }
.stroke3 { stroke: #008a63; stroke: var(--c3); }
.stroke4 { stroke: #b0508f; stroke: var(--c4); }
.stroke5 { stroke: #3a8fc4; stroke: var(--c5); }
.stroke6 { stroke: #6b6b00; stroke: var(--c6); }
.stroke7 { stroke: #444444; stroke: var(--c7); }
.stroke8 { stroke: #7a4fd0; stroke: var(--c8); }
.stroke9 { stroke: #a03030; stroke: var(--c9); }
.stroke10 { stroke: #1f7a1f; stroke: var(--c10); }
.stroke11 { stroke: #8a5a2b; stroke: var(--c11); }
";

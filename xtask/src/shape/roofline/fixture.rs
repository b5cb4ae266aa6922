//! A small kernel for tests, with the shape that the roofline reads.

/// A loop over spans around a hot loop like that of a copy, with a loop over what is left.
pub(super) fn copy_listing(reduction: &str) -> String {
    let code = format!(
        ".L_x_1:
        LDG.E.64 R2, desc[UR4][R2.64]
        @P3 BRA `(.L_x_4)
        .L_x_2:
        {}{}{}@P0 BRA `(.L_x_2)
        @P1 BRA `(.L_x_4)
        .L_x_3:
        LDG.E.NA.128 R8, desc[UR4][R4.64]
        STG.E.128 desc[UR4][R6.64], R8
        @P2 BRA `(.L_x_3)
        .L_x_4:
        {reduction}@P4 EXIT
        BRA `(.L_x_1)",
        "LDG.E.64 R4, desc[UR4][R2.64]\n".repeat(4),
        [8, 12, 16, 20].map(|to| format!("LDG.E.NA.128 R{to}, desc[UR4][R4.64]\n")).concat(),
        "STG.E.128 desc[UR4][R6.64], R8\n".repeat(4),
    );
    let lines = code.lines().map(|line| match line.trim() {
        label if label.starts_with('.') => format!("{label}\n"),
        text => format!("        /*0000*/                   {text} ;\n"),
    });
    format!(".text.kvtide_copy_16:\n{}", lines.collect::<String>())
}

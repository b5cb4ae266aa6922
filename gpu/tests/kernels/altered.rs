//! That the comparison can fail: PTX with one instruction altered is found out.

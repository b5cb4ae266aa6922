//! A page out of fuzzer bytes.

use kvtide::store::format::Page;
use kvtide_kernels::checksum;

/// Makes a page of what follows the first byte, filled up with zeros; by that byte's lowest bit,
/// the page's sum is made right, so that what lies behind it is reached.
pub fn page(bytes: &[u8]) -> Page {
    let mut page = [0; 4096];
    let (choice, bytes) = bytes.split_first().unwrap_or((&0, &[]));
    let length = bytes.len().min(page.len());
    page[..length].copy_from_slice(&bytes[..length]);
    if choice & 1 == 1 {
        let words = page[..4088].as_chunks::<8>().0;
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        page[4088..].copy_from_slice(&checksum::sum(&words, 0).to_le_bytes());
    }
    page
}

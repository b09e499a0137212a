// SPDX-License-Identifier: Apache-2.0

package message

import "testing"

// TestJavaHash compares with a table made by JDK 17: new String(bytes, UTF_8).hashCode(). The first part is
// well-formed, the second is not.
func TestJavaHash(t *testing.T) {
	f := func(text string, want int32) {
		t.Helper()
		b := unhex(t, text)
		if got := JavaHash(b); got != want {
			t.Fatalf("JavaHash(%s)=%d; want %d", text, got, want)
		}
		if got := TagsCode(b); got != int64(want) {
			t.Fatalf("TagsCode(%s)=%d; want it sign-extended", text, got)
		}
	}
	f("", 0)
	f("61", 97)
	f("54616741", 2598919)
	f("54616742", 2598920)
	f("2a", 42)
	f("706f6c7967656e656c7562726963616e7473", -2147483648)
	f("00", 0)
	f("e6a087e7adbe", 857175)
	f("d0bad0bbd18ed187", 33309882)
	f("c3a9", 233)
	f("e282ac", 8364)
	f("f09f9880", 1772899)
	f("61f09f988062", 57849694)
	f("f48fbfbf", 1803232)
	f("6f726465722370616964", 700871393)
	f("7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a", -509494784)
	f("546f70696354657374233746303030303031304231453138423441414332", 450493696)
	f("cc80", 768)
	f("44455349474e494e4720574f524b484f55534553", -2147483648)

	f("80", 65533)
	f("bf", 65533)
	f("c0", 65533)
	f("c0af", 2097056)
	f("c1bf", 2097056)
	f("c2", 65533)
	f("c241", 2031588)
	f("c3a9c3", 72756)
	f("e0", 65533)
	f("e080", 2097056)
	f("e08080", 65074269)
	f("e0a0", 65533)
	f("e0a041", 2031588)
	f("e28241", 2031588)
	f("e282", 65533)
	f("ed", 65533)
	f("eda0", 65533)
	f("eda080", 65533)
	f("edb080", 65533)
	f("eda0bdedb880", 2097056)
	f("eda041", 2031588)
	f("f0", 65533)
	f("f08080", 65074269)
	f("f090", 65533)
	f("f09080", 65533)
	f("f0908080", 1770496)
	f("f0904180", 63044761)
	f("f09f98", 65533)
	f("f09f9841", 2031588)
	f("f09f4198", 63044761)
	f("f48f", 65533)
	f("f4908080", 2017367872)
	f("f490", 2097056)
	f("f4", 65533)
	f("f5", 65533)
	f("f5808080", 2017367872)
	f("f7bfbfbf", 2017367872)
	f("f88888888888", 1662371552)
	f("fe", 65533)
	f("ff", 65533)
	f("fffe", 2097056)
	f("61ff62", 2124838)
	f("e2e282ac", 2039887)
	f("f0f09f9880", 64750112)
	f("efbfbd", 65533)
	f("41e2828241", 320512)
	f("f09f98f09f9880", 64750112)
	f("edbfbf", 65533)
	f("f48fbfbf", 1803232)
	f("e0ffa0", 65074269)
}

func TestExtendJavaHash(t *testing.T) {
	whole := []byte("TopicTest#键TopicTest")
	for _, cut := range []int{0, 1, 3, 4, 5, 8, 10, 13, 14, 18, len(whole)} {
		if got, want := ExtendJavaHash(JavaHash(whole[:cut]), whole[cut:]), int32(1185090645); got != want {
			t.Errorf("cut at %d: %d, want %d", cut, got, want)
		}
	}
}

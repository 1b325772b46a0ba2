package farm

import "testing"

func TestParseUIDs(t *testing.T) {
	for text, want := range map[string]UIDs{"none": {}, "1000-1000": {1000, 1000},
		"2113929216-2113994751": {2113929216, 2113994751}, "65536-4294967294": {65536, 4294967294}} {
		got, err := ParseUIDs(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0-10", "999-2000", "2000", "3000-2000", "a-b", "-5", "5000-", "1000-65535",
		"1000-65534", "65535-70000", "70000-4294967295", "1000-5000000000"} {
		if got, err := ParseUIDs(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

// TestFreeUID gives every ID once, from wherever it begins, and then none.
func TestFreeUID(t *testing.T) {
	for _, u := range []UIDs{{5000, 5006}, {4294967288, 4294967294}} {
		for _, offset := range []uint32{0, 3, 6, 7, 1 << 31, 1<<32 - 1} {
			used := map[uint32]bool{}
			for range 7 {
				uid, ok := u.Free(offset, func(uid uint32) bool { return used[uid] })
				if !ok || used[uid] || !u.Has(uid) {
					t.Fatalf("%v from %d: %d, %v after %v", u, offset, uid, ok, used)
				}
				used[uid] = true
			}
			if uid, ok := u.Free(offset, func(uid uint32) bool { return used[uid] }); ok {
				t.Errorf("%v has an eighth: %d", u, uid)
			}
		}
	}
	if uid, ok := (UIDs{}).Free(3, func(uint32) bool { return false }); ok || (UIDs{}).Has(0) ||
		(UIDs{}).Overlaps(0, 10) {
		t.Errorf("none has %d", uid)
	}
}

package classad

import (
	"maps"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	ad, err := Parse("# a comment\nCpus = 2\nMemory = 384.9\nName = \"slot1_1@ex1\"\n\nWantVM = " +
		"TRUE\nOff=false\nRequirements = (TARGET.Arch == \"X86_64\")\n" +
		"Cmd = \"a \\\"b\\\" \\\\ \\101\\n\"\nTwo = \"a\" == \"b\"\ncpus = 3\nNaN = nan\nHuge = 1e300\nDelayed.x = 1\n")
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := ad.Int("CPUS"); n != 3 || !ok {
		t.Errorf("the last Cpus counts: %d", n)
	}
	if n, ok := ad.Int("Memory"); n != 384 || !ok {
		t.Errorf("Memory %d", n)
	}
	for name, want := range map[string]string{"name": "slot1_1@ex1", "Cmd": "a \"b\" \\ A\n", "Two": "", "Cpus": "",
		"none": ""} {
		if got := ad.String(name); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
	for _, name := range []string{"NaN", "Huge", "Requirements", "none", "WantVM"} {
		if n, ok := ad.Int(name); ok {
			t.Errorf("%s is the number %d", name, n)
		}
	}
	if v, ok := ad.Bool("wantvm"); !v || !ok {
		t.Error("WantVM")
	}
	if v, ok := ad.Bool("Off"); v || !ok {
		t.Error("Off")
	}
	if _, ok := ad.Bool("Cpus"); ok || ad.Has("none") || !ad.Has("REQUIREMENTS") {
		t.Error("what is there, and what is no truth value")
	}
	for _, bad := range []string{"no equals sign", "a b = 1", "= 3", "x =", "1x = 3"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q is taken for an attribute", bad)
		}
	}
}

func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", `a"b\c`, "line\nbreak\x01\x7fü", `\101`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ad, err := Parse("X = " + Quote(s) + "\nY = 1\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := ad.String("X"); got != s {
			t.Errorf("%q became %q", s, got)
		}
		if n, _ := ad.Int("Y"); n != 1 {
			t.Error("it ran over into the next attribute")
		}
	})
}

// FuzzParse: what is read is bounded by what was there, and reading what an ad says by its names gives the same ad.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "A = 1\n", "a=b=c", "# no attribute\nX = \"y\"\n", "X.Y = 2147483648", "=",
		"A = \"\\", "A = true\r\na = FALSE", "1 = 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ad, err := Parse(text)
		if err != nil {
			return
		}
		var again strings.Builder
		for name, value := range ad.text {
			if !isName(name) || len(name)+len(value) > len(text) || strings.ContainsAny(value, "\n") {
				t.Errorf("attribute %q: %q", name, value)
			}
			if n, ok := ad.Int(name); ok && ad.String(name) != "" {
				t.Errorf("%q is the number %d and a string", value, n)
			}
			ad.Bool(name)
			again.WriteString(name + " = " + value + "\n")
		}
		if same, err := Parse(again.String()); err != nil || !maps.Equal(same.text, ad.text) {
			t.Errorf("%v: %v, %v", ad.text, same.text, err)
		}
	})
}

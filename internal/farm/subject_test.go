package farm

import "testing"

func TestParseSubject(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"CN=Ann,O=Grid,C=CH", "CN=Ann,O=Grid,C=CH"},
		{"/C=CH/O=Grid/CN=Ann", "CN=Ann,O=Grid,C=CH"},
		{" cn = Ann , o=Grid ", "CN=Ann,O=Grid"},
		{"/DC=ch/DC=example/OU=People/CN=host/wn1.example.ch", "CN=host/wn1.example.ch,OU=People,DC=example,DC=ch"},
		{"/C=IT/O=Grid/CN=A=B", "CN=A=B,O=Grid,C=IT"},
		{"/O=Grid/Email=a@b.ch", "emailAddress=a@b.ch,O=Grid"},
		{`CN=Ann\, Dr.,O=Grid`, `CN=Ann\, Dr.,O=Grid`},
		{"/O=Grid/CN=Ann, Dr.", `CN=Ann\, Dr.,O=Grid`},
		{"", ""}, {"Ann", ""}, {"/", ""}, {"CN=", ""}, {"CN=Ann,,O=Grid", ""}, {"=Ann", ""},
	} {
		s, err := ParseSubject(c.text)
		if got := s.String(); got != c.want {
			t.Errorf("ParseSubject(%q) = %q, %v; want %q", c.text, got, err, c.want)
		}
		if (err != nil) != (c.want == "") {
			t.Errorf("ParseSubject(%q): %v", c.text, err)
		}
		again, err := ParseSubject(s.String())
		if c.want != "" && (err != nil || again.String() != s.String()) {
			t.Errorf("%q read again is %q, %v", s, again, err)
		}
	}
}

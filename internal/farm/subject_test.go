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

func TestPlainSubject(t *testing.T) {
	for text, want := range map[string]string{
		"CN=Ann,O=Grid":                 "CN=Ann,O=Grid",
		"cern:CN=Ann, O=Grid":           "cern:CN=Ann,O=Grid",
		" cern:/O=Grid/CN=Ann":          "cern:CN=Ann,O=Grid",
		"CN=robot: mail,O=Grid":         "CN=robot: mail,O=Grid",
		"/O=Grid/CN=robot:mail":         "CN=robot:mail,O=Grid",
		"cern:CN=robot:mail":            "cern:CN=robot:mail",
		"cern:":                         "",
		":CN=Ann":                       "",
		"a b:CN=Ann":                    "",
		"cern:site:CN=Ann":              "",
		`cern: CN = Ann\,O=Grid , C=CH`: `cern:CN=Ann\,O=Grid,C=CH`,
	} {
		got, err := PlainSubject(text)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestSubjectBelow(t *testing.T) {
	for _, c := range []struct {
		subject, namespace string
		want               bool
	}{
		{"CN=Ann,DC=cern,DC=ch", "DC=cern,DC=ch", true},
		{"DC=cern,DC=ch", "DC=cern,DC=ch", true},
		{"DC=ch", "DC=cern,DC=ch", false},
		{"CN=Ann,DC=notcern,DC=ch", "DC=cern,DC=ch", false},
		{`CN=Ann\,DC=cern,DC=ch`, "DC=cern,DC=ch", false},
		{"DC=cern,DC=ch,CN=Ann", "DC=cern,DC=ch", false},
	} {
		s, err := ParseSubject(c.subject)
		if err != nil {
			t.Fatal(err)
		}
		namespace, err := ParseSubject(c.namespace)
		if err != nil || s.Below(namespace) != c.want {
			t.Errorf("%s below %s: %v, %v", c.subject, c.namespace, !c.want, err)
		}
	}
}

package imagesource

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

const (
	sum256 = "5df6e0e2761359d30a8275058e299fcc0381534545f55cf43e41983f5d4c9456"
	other  = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

func TestFindSum(t *testing.T) {
	sum512 := strings.Repeat("0a", 64)
	for name, c := range map[string]struct {
		list string
		want Sum // "": refused
	}{
		"text":             {sum256 + "  disk.qcow2\n", sum256},
		"binary":           {sum256 + " *disk.qcow2\n", sum256},
		"a directory":      {other + "  a/other\n" + sum256 + "  ./images/disk.qcow2\n", sum256},
		"upper case":       {strings.ToUpper(sum256) + "  disk.qcow2\r\n", sum256},
		"BSD":              {"# disk.qcow2: 12 bytes\nSHA256 (disk.qcow2) = " + sum256 + "\n", sum256},
		"the stronger one": {sum256 + "  disk.qcow2\n" + sum512 + "  disk.qcow2\n", Sum(sum512)},
		"twice the same":   {sum256 + "  disk.qcow2\n" + sum256 + "  x/disk.qcow2\n", sum256},
		"two that differ":  {sum256 + "  disk.qcow2\n" + other + "  x/disk.qcow2\n", ""},
		"another file":     {sum256 + "  disk.qcow2.old\n", ""},
		"MD5":              {strings.Repeat("a", 32) + "  disk.qcow2\n", ""},
		"a page":           {"<html>not found</html>", ""},
		"nothing":          {"", ""},
	} {
		got, err := FindSum(c.list, "disk.qcow2")
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !hasCode(err, CodeUnverified) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestSum(t *testing.T) {
	sum, err := ParseSum(" " + strings.ToUpper(other) + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := sum.Check(strings.NewReader(""), "empty"); err != nil {
		t.Error(err)
	}
	if err := sum.Check(strings.NewReader("x"), "x"); !hasCode(err, CodeUnverified) {
		t.Error(err)
	}
	for _, bad := range []string{"", "abc", other[1:], "z" + other[1:]} {
		if _, err := ParseSum(bad); !hasCode(err, CodeUnverified) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestSignature uses keys and signatures that gpg made, in testdata.
func TestSignature(t *testing.T) {
	file := func(name string) []byte {
		if name == "" {
			return nil
		}
		text, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	now := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		text, signature, keyring string
		valid                    bool
	}{
		"detached":                 {"SHA256SUMS", "SHA256SUMS.gpg", "image.gpg", true},
		"with armor":               {"SHA256SUMS", "SHA256SUMS.asc", "image.gpg", true},
		"a keyring with armor":     {"SHA256SUMS", "SHA256SUMS.gpg", "image.asc", true},
		"clear-signed":             {"CHECKSUM", "", "image.gpg", true},
		"not signed":               {"SHA256SUMS", "", "image.gpg", false},
		"of another text":          {"CHECKSUM", "SHA256SUMS.gpg", "image.gpg", false},
		"by another key":           {"SHA256SUMS", "SHA256SUMS.gpg", "expired.gpg", false},
		"by an expired key":        {"SHA256SUMS", "expired.sig", "expired.gpg", false},
		"no keyring":               {"SHA256SUMS", "SHA256SUMS.gpg", "SHA256SUMS", false},
		"clear-signed, by another": {"CHECKSUM", "", "expired.gpg", false},
	} {
		text, by, err := VerifySignature(file(c.text), file(c.signature), file(c.keyring), now)
		if (err == nil) != c.valid || err != nil && !hasCode(err, CodeUnverified) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if sum, err := FindSum(string(text), "disk.qcow2"); c.valid && (err != nil || sum != sum256 ||
			!strings.Contains(by, "image@example.org")) {
			t.Errorf("%s: by %q: %q, %v", name, by, sum, err)
		}
	}
	signed := bytes.Replace(file("CHECKSUM"), []byte("-----BEGIN PGP SIGNED"), []byte(other+"  disk.qcow2\n-----BEGIN PGP SIGNED"), 1)
	text, _, err := VerifySignature(signed, nil, file("image.gpg"), now)
	if sum, found := FindSum(string(text), "disk.qcow2"); err != nil || found != nil || sum != sum256 {
		t.Errorf("a line in front of the signed text counts: %q, %v, %v", sum, err, found)
	}
}

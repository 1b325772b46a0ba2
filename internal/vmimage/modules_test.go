package vmimage

import (
	"bytes"
	"testing"
)

func TestWithoutSignature(t *testing.T) {
	info := func(length ...byte) []byte { return append(make([]byte, 8), length...) }
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	module := []byte("\x7fELF module")
	for name, c := range map[string]struct{ data, want []byte }{
		"signed":               {join(module, []byte("signature"), info(0, 0, 0, 9), signatureMark), module},
		"unsigned":             {module, module},
		"nothing but the mark": {signatureMark, signatureMark},
		"a length beyond the file": {join(module, info(0xff, 0xff, 0xff, 0xff), signatureMark),
			join(module, info(0xff, 0xff, 0xff, 0xff), signatureMark)},
	} {
		if got := withoutSignature(c.data); !bytes.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

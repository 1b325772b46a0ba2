package lastline

import (
	"bytes"
	"testing"
)

func TestPrint(t *testing.T) {
	for _, c := range []struct {
		figures any
		failed  int
		want    string
	}{
		{struct{}{}, 0, `{"failed":0}`},
		{&struct {
			A int `json:"a"`
		}{7}, 2, `{"failed":2,"a":7}`},
	} {
		var b bytes.Buffer
		if err := fprint(&b, c.figures, c.failed); err != nil || b.String() != c.want+"\n" {
			t.Errorf("%q, %v", b.String(), err)
		}
	}
	if err := fprint(&bytes.Buffer{}, []int{1}, 0); err == nil {
		t.Error("a list has no place for the failures")
	}
}

package tuning

import (
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{
		"web3": "web3", "/srv/a-b_c.tar": "/srv/a-b_c.tar", "": "''", "a b": "'a b'", "x; reboot": "'x; reboot'",
		"it's":  `'it'\''s'`,
		"$(id)": "'$(id)'", "~root": "'~root'", "größe": "'größe'", "a\nb": "'a\nb'",
	} {
		if got := ShellWord(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestEditQuotesNames(t *testing.T) {
	if text := edit(farm.Domain{Name: "a b; reboot"}, "do this"); !strings.HasPrefix(text,
		"virsh edit 'a b; reboot': do this.") {
		t.Error(text)
	}
}

package imagerecipe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestParameters: an old release gets what it needs, by the boot loader that it has, and a newer one nothing.
func TestParameters(t *testing.T) {
	legacy := "title x\n\tkernel /vmlinuz ro root=/dev/sda1\n\tinitrd /initrd\n"
	for name, c := range map[string]struct {
		release    string
		class      byte
		parameters []string
		want       string
	}{
		"5.4":         {"CentOS release 5.4 (Final)", 2, []string{auto}, "ro root=/dev/sda1 notsc\n"},
		"5.3, 32":     {"Scientific Linux SL release 5.3 (Boron)", 1, []string{auto}, "root=/dev/sda1 clocksource=acpi_pm\n"},
		"5.11":        {"Scientific Linux SL release 5.11 (Boron)", 2, []string{auto}, "root=/dev/sda1\n"},
		"5.11, asked": {"Scientific Linux SL release 5.11 (Boron)", 2, []string{"quiet", auto}, "root=/dev/sda1 quiet\n"},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "etc/redhat-release"), c.release+"\n")
		write(t, filepath.Join(root, "sbin/init"), "\x7fELF"+string(rune(c.class)))
		write(t, filepath.Join(root, "boot/grub/grub.conf"), legacy)
		r := Recipe{Parameters: c.parameters}
		if err := parameters(t, root, r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		text, err := os.ReadFile(filepath.Join(root, "boot/grub/grub.conf"))
		if err != nil || !strings.Contains(string(text), c.want) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	root := t.TempDir()
	write(t, filepath.Join(root, "etc/default/grub"), "GRUB_CMDLINE_LINUX=\"quiet\"\n")
	if err := parameters(t, root, Recipe{Parameters: []string{"a=b"}}); err != nil {
		t.Error(err)
	}
	text, _ := os.ReadFile(filepath.Join(root, "etc/default/grub"))
	if want := "\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX a=b\"\n"; !strings.HasSuffix(string(text), want) {
		t.Errorf("%q", text)
	}
	err := parameters(t, t.TempDir(), Recipe{Parameters: []string{"a=b"}})
	if err == nil || !strings.Contains(err.Error(), "no GRUB") {
		t.Errorf("without a boot loader: %v", err)
	}
	for _, r := range releases {
		if r.source == "" || r.parameters == "" {
			t.Errorf("%+v has no source", r)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func parameters(t *testing.T, root string, r Recipe) error {
	t.Helper()
	list := filepath.Join(t.TempDir(), "parameters")
	write(t, list, r.parameterLines())
	cmd := shell(t, `exec sh -c "$SCRIPT" sh "$LIST"`)
	cmd.Env = append(os.Environ(), "ROOT="+root, "LIST="+list, "SCRIPT="+string(parametersScript))
	return follow(cmd, func(string) {})
}

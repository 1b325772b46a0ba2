package main

import (
	"io"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/cli"
)

// TestClaims: what the documents state is so.
func TestClaims(t *testing.T) {
	f, problems, err := compare("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	if f.Commands < 900 || f.Names < 1500 {
		t.Errorf("few statements were found: %+v", f)
	}
}

func TestWrongCommandsAreFound(t *testing.T) {
	tree := cli.New(io.Discard)
	for text, want := range map[string]string{
		"`grange vm list --json`":                                             "",
		"`grange vm suspend`":                                                 `no command "suspend"`,
		"`grange tune audit --ruel x`":                                        "no flag --ruel",
		"`grange exec --network user -- ls --foo`":                            "",
		"`grange exec ls --foo`":                                              "",
		"`grange exec --cpus many -- ls`":                                     "refuses many",
		"`grange vm NAME` and `grange host …`":                                "",
		"```\n$ sudo grange vm show\n```":                                     "accepts 1 arg",
		"```\n# GRANGE_SERVER=x grange vm list | grange vm lst\n```":          `no command "lst"`,
		"```\n$ grange host fit --cpus 4 \\\n    --memory 4G --pagse 2M\n```": "no flag --pagse",
		"```\ngrange tune: nothing is left to do\n```":                        "",
		"```\n$ /usr/bin/grange agent --check # grange foo\n```":              "",
	} {
		_, problems := checkCommands(tree, parse("x.md", text))
		if len(problems) == 0 && want != "" || len(problems) > 0 && (want == "" ||
			!strings.Contains(problems[0].text, want)) {
			t.Errorf("%s: %v, want %q", text, problems, want)
		}
	}
}

func TestWrongNamesAreFound(t *testing.T) {
	all, err := kinds("../..", cli.New(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		"--json": 0, "--jsno": 1, "--no-vm": 0,
		"make test": 0, "make tset": 1,
		"grange_agent_ready": 0, "grange_server_answer_seconds_bucket": 0, "grange_cows": 1,
		"GrangeDown": 0, "GrangeUpsideDown": 1,
		"TestCows": 1, "TestTuner": 0,
		"internal/cli": 0, "internal/clay": 1,
		"no-agent": 0, "no-agnet": 1,
	} {
		found := 0
		for _, k := range all {
			_, problems := k.check(parse("x.md", "`"+name+"`"))
			found += len(problems)
		}
		if found != want {
			t.Errorf("%s: %d problems, want %d", name, found, want)
		}
	}
}

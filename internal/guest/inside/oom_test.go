package inside

import "testing"

func TestOOMKills(t *testing.T) {
	for text, want := range map[string]int{"": 0, "nr_free_pages 1\noom_kill 3\noom_kill_other 7\n": 3,
		"oom_kill x\n": 0, "not_oom_kill 5\n": 0} {
		if got := oomKillsIn(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

package batch

import (
	"testing"
	"testing/fstest"
)

func TestCheckLogin(t *testing.T) {
	for name, c := range map[string]struct {
		sshd, more, pam string
		want            Level
		found           string
	}{
		"no sshd": {want: Good, found: "no sshd"},
		"everybody": {sshd: "UsePAM yes\n",
			pam: "account required pam_nologin.so\n@include common-account\n", want: Warning,
			found: "sshd lets in everybody who has an account here"},
		"a remark": {sshd: "#AllowGroups wheel\n", pam: "# account required pam_access.so\n",
			want: Warning, found: "sshd lets in everybody who has an account here"},
		"groups": {sshd: "AllowGroups wheel admins\n", want: Good, found: "AllowGroups wheel admins"},
		"users, in a file more": {sshd: "Include /etc/ssh/sshd_config.d/*.conf\n", more: "  allowusers root\n",
			want: Good, found: "allowusers root"},
		"pam_access": {sshd: "x y\n", pam: "account  required     pam_access.so\n", want: Good,
			found: "pam_access.so decides who logs in"},
		"adopted": {sshd: "x y\n", pam: "-account required /lib/security/pam_slurm_adopt.so\n",
			want: Warning, found: "pam_slurm_adopt.so lets in whoever has a job here"},
		"adopted or listed": {sshd: "x y\n",
			pam: "account sufficient pam_slurm_adopt.so\naccount required pam_access.so\n", want: Warning,
			found: "pam_slurm_adopt.so lets in whoever has a job here"},
		"with brackets": {sshd: "x y\n", pam: "account [success=1 default=ignore] pam_slurm.so\n",
			want: Warning, found: "pam_slurm.so lets in whoever has a job here"},
		"of another kind": {sshd: "x y\n", pam: "session required pam_access.so\n", want: Warning,
			found: "sshd lets in everybody who has an account here"},
	} {
		tree := fstest.MapFS{}
		for path, text := range map[string]string{"etc/ssh/sshd_config": c.sshd, "etc/ssh/sshd_config.d/1.conf": c.more,
			"etc/pam.d/sshd": c.pam} {
			if text != "" {
				tree[path] = &fstest.MapFile{Data: []byte(text)}
			}
		}
		if f := CheckLogin(tree); f.Level != c.want || f.Found != c.found || f.Level != Good &&
			(f.Why == "" || f.Do == "") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

# For a tap. A release holds this file with its own version, checksum and home: tools/release_formula.py.
class GatekeeperSlo < Formula
  include Language::Python::Virtualenv

  desc "Certify speculative decoding of language models before you deploy it"
  homepage "https://github.com/OWNER/gatekeeper"
  url "https://files.pythonhosted.org/packages/source/g/gatekeeper-slo/gatekeeper_slo-0.3.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "python@3.13"

  def install
    venv = virtualenv_create(libexec, "python3.13")
    system libexec/"bin/python", "-m", "pip", "install", "--require-hashes", "--no-deps", "-r", pins
    venv.pip_install_and_link buildpath
  end

  def pins
    (buildpath/"pins.txt").tap do |file|
      file.write Utils.safe_popen_read(libexec/"bin/python", "gatekeeper/run/remote/pylock.py", "pylock.toml")
    end
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/gatekeeper --version")
    assert_match "throughput_ratio", shell_output("#{bin}/gatekeeper explain metrics")
  end
end

{
  description = "Gives short flows the road to themselves: splitter, cloudburst and netsim";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = build: nixpkgs.lib.genAttrs systems (system: build nixpkgs.legacyPackages.${system});
      program = pkgs: name: package: pkgs.rustPlatform.buildRustPackage {
        pname = name;
        version = (nixpkgs.lib.importTOML ./Cargo.toml).workspace.package.version;
        src = self;
        cargoLock.lockFile = ./Cargo.lock;
        cargoBuildFlags = [ "--package" package ];
        # They make network namespaces and load programs into the kernel.
        doCheck = false;
        nativeBuildInputs = [ pkgs.installShellFiles ];
        postInstall = ''
          mkdir -p $out/share/man/man1
          $out/bin/${name} man --out $out/share/man/man1
          installShellCompletion --cmd ${name} \
            --bash <($out/bin/${name} completions bash) \
            --zsh <($out/bin/${name} completions zsh) \
            --fish <($out/bin/${name} completions fish)
        '';
        meta.mainProgram = name;
      };
    in
    {
      packages = each (pkgs: {
        splitter = program pkgs "splitter" "splitter-agent";
        cloudburst = program pkgs "cloudburst" "cloudburst-cli";
        default = self.packages.${pkgs.system}.splitter;
      });
    };
}
